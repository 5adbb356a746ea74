//! The Python module `octavo_native._native`; the package `octavo_native` exports it. No logic here: arguments in, results out.

mod blocks;
mod decoding;
mod events;
mod grammar;
mod parsing;
mod rendering;
mod templates;
mod values;

use pyo3::prelude::*;

/// Native parts of octavo.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(blocks::hash_blocks, module)?)?;
    module.add_function(wrap_pyfunction!(blocks::root_key, module)?)?;
    module.add_function(wrap_pyfunction!(grammar::check_schema, module)?)?;
    module.add_function(wrap_pyfunction!(grammar::accepts, module)?)?;
    module.add_function(wrap_pyfunction!(grammar::fill_masks, module)?)?;
    module.add_class::<grammar::PyVocabulary>()?;
    module.add_class::<grammar::PyGrammar>()?;
    module.add_class::<grammar::PyMatcher>()?;
    module.add(
        "GrammarError",
        module.py().get_type::<grammar::GrammarError>(),
    )?;
    module.add(
        "RenderError",
        module.py().get_type::<rendering::RenderError>(),
    )?;
    module.add_class::<rendering::PyRenderer>()?;
    module.add_class::<rendering::PyPrepared>()?;
    module.add_class::<rendering::PyOutputText>()?;
    module.add_class::<decoding::PyIncrementalDecoder>()?;
    module.add_function(wrap_pyfunction!(templates::render_template, module)?)?;
    module.add_function(wrap_pyfunction!(parsing::parse, module)?)?;
    module.add_function(wrap_pyfunction!(parsing::parser_names, module)?)?;
    module.add_class::<parsing::PyParser>()?;
    module.add_class::<events::PyEvent>()?;
    module.add_class::<events::PyMessage>()?;
    module.add_class::<events::PyToolCall>()?;
    Ok(())
}
