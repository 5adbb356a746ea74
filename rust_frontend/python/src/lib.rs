//! The Python module `octavo_native._native`; the package `octavo_native` exports it. No logic here: arguments in, results out.

mod blocks;
mod rendering;

use pyo3::prelude::*;

/// Native parts of octavo.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(blocks::hash_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(blocks::root_key, module)?)?;
    module.add(
        "RenderError",
        module.py().get_type::<rendering::RenderError>(),
    )?;
    module.add_class::<rendering::PyRenderer>()?;
    module.add_class::<rendering::PyPrepared>()?;
    module.add_class::<rendering::PyOutputText>()?;
    Ok(())
}
