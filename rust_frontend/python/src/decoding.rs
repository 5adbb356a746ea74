//! Decoding token by token.

use octavo_tokenizer::IncrementalDecoder;
use pyo3::prelude::*;

use crate::rendering::PyRenderer;

/// Text of a growing list of ids.
#[pyclass(name = "IncrementalDecoder", module = "octavo_native")]
pub(crate) struct PyIncrementalDecoder {
    decoder: IncrementalDecoder,
}

#[pymethods]
impl PyIncrementalDecoder {
    #[new]
    #[pyo3(signature = (renderer, prompt=Vec::new()))]
    fn new(renderer: &PyRenderer, prompt: Vec<u32>) -> Self {
        let tokenizer = renderer.renderer().tokenizer();
        let context = tokenizer.context(&prompt);
        Self {
            decoder: tokenizer.decoder(&context),
        }
    }

    fn push(&mut self, py: Python<'_>, ids: Vec<u32>) -> String {
        py.detach(|| {
            let mut text = String::new();
            self.decoder.push(&ids, &mut text);
            text
        })
    }

    fn finish(&mut self) -> String {
        let mut text = String::new();
        self.decoder.finish(&mut text);
        text
    }
}
