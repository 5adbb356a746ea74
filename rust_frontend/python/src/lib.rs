//! The Python module `octavo_native._native`; the package `octavo_native` exports it. No logic here: arguments in, results out.

mod blocks;

use pyo3::prelude::*;

/// Native parts of octavo.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(blocks::hash_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(blocks::root_key, module)?)?;
    Ok(())
}
