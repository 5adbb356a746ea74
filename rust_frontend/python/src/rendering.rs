//! Prompts and texts of one model, as the server makes them.

use std::path::PathBuf;
use std::sync::Arc;

use octavo_api::{ApiError, Body, ChatRequest, CompletionRequest, FinishReason, StopReason};
use octavo_grammar::{Detected, Format, FormatError, Registry};
use octavo_parser::Specials;
use octavo_render::{Limits, Prepared, Renderer};
use octavo_tokenizer::IncrementalDecoder;
use octavo_wire::frontend::Finish;
use octavo_wire::{Wire as _, Writer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::{templates, values};

/// Below this many bytes, rendering takes less time than giving the interpreter away and taking it back.
const DETACH_BYTES: usize = 4 * 1024;

pyo3::create_exception!(
    octavo_native,
    RenderError,
    PyValueError,
    "A request that cannot be rendered. args: message, code, param (None where no field is at fault)."
);

/// Finish reason, stop string or id of the request, tokens that count.
type EndTuple = (&'static str, Option<StopValue>, usize);

/// What stopped an output.
#[derive(IntoPyObject)]
pub(crate) enum StopValue {
    Token(i32),
    Text(String),
}

/// Turns requests for one model into prompts, and tokens into text.
#[pyclass(name = "Renderer", module = "octavo_native", frozen)]
pub(crate) struct PyRenderer {
    renderer: Arc<Renderer>,
}

#[pymethods]
impl PyRenderer {
    #[new]
    #[pyo3(signature = (folder, seed=None, max_logprobs=20))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        seed: Option<u64>,
        max_logprobs: i32,
    ) -> PyResult<Self> {
        let renderer = py
            .detach(|| Renderer::load(&folder, seed))
            .map_err(|error| PyValueError::new_err(error.to_string()))?
            .with_max_logprobs(usize::try_from(max_logprobs).ok());
        Ok(Self {
            renderer: Arc::new(renderer),
        })
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.renderer.warnings().to_vec()
    }

    fn chat(
        &self,
        py: Python<'_>,
        body: PyBackedBytes,
        max_model_len: usize,
        vocab_size: usize,
    ) -> PyResult<PyPrepared> {
        self.prepare(py, max_model_len, vocab_size, |renderer, limits| {
            let body = Body::parse_chat(&body, renderer.seen())?;
            renderer.chat(&ChatRequest::from_body(body)?, limits)
        })
    }

    fn completion(
        &self,
        py: Python<'_>,
        body: PyBackedBytes,
        max_model_len: usize,
        vocab_size: usize,
    ) -> PyResult<PyPrepared> {
        self.prepare(py, max_model_len, vocab_size, |renderer, limits| {
            let request = CompletionRequest::from_body(Body::parse(&body)?)?;
            renderer.completion(&request, limits)
        })
    }

    /// The text of the prompt that a conversation gives.
    fn chat_text(&self, py: Python<'_>, body: PyBackedBytes) -> PyResult<String> {
        py.detach(|| {
            let body = Body::parse_chat(&body, self.renderer.seen())?;
            self.renderer.chat_text(&ChatRequest::from_body(body)?)
        })
        .map_err(|error| refused(&error))
    }

    /// The text of the prompt that messages give.
    #[pyo3(signature = (messages, tools=None, **fields))]
    fn render(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        tools: Option<&Bound<'_, PyAny>>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let body = templates::body(messages, tools, fields)?.into();
        py.detach(|| self.renderer.chat_text(&ChatRequest::from_body(body)?))
            .map_err(|error| refused(&error))
    }

    /// The ids of the prompt that messages give.
    #[pyo3(signature = (messages, tools=None, **fields))]
    fn render_tokens(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        tools: Option<&Bound<'_, PyAny>>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<u32>> {
        let body = templates::body(messages, tools, fields)?;
        let short = body.values().map(values::weight).sum::<usize>() < DETACH_BYTES;
        let render = || {
            let request = ChatRequest::from_body(body.into())?;
            let limits = self.renderer.limits();
            self.renderer.chat_tokens(&request, usize::MAX, limits)
        };
        let ids = if short { render() } else { py.detach(render) };
        ids.map_err(|error| refused(&error))
    }

    #[pyo3(signature = (text, add_special_tokens=false))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        py.detach(|| self.renderer.tokenizer().encode(text, add_special_tokens))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The text of each id by itself, special tokens included; U+FFFD for bytes that are no character alone.
    fn token_texts(&self, py: Python<'_>, ids: Vec<u32>) -> Vec<String> {
        let tokenizer = self.renderer.tokenizer();
        let text = |id: u32| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        py.detach(|| ids.into_iter().map(text).collect())
    }

    fn decode(&self, py: Python<'_>, ids: Vec<u32>) -> String {
        py.detach(|| self.renderer.tokenizer().decode(&ids))
    }
}

impl PyRenderer {
    pub(crate) fn renderer(&self) -> &Renderer {
        &self.renderer
    }

    /// What the parser needs to read ids.
    pub(crate) fn detokenizer(&self) -> (Arc<Specials>, IncrementalDecoder) {
        let tokenizer = self.renderer.tokenizer();
        let specials = Specials::new(tokenizer.special_texts());
        (Arc::new(specials), tokenizer.decoder(&[]))
    }

    /// The model's response template as a format.
    pub(crate) fn response_template(&self) -> Option<Result<Format, FormatError>> {
        self.renderer.response_template()
    }

    /// The formats that the model's template and tokens speak of.
    pub(crate) fn detect(&self, registry: &Registry) -> Detected {
        self.renderer.detect(registry)
    }

    fn prepare(
        &self,
        py: Python<'_>,
        max_model_len: usize,
        vocab_size: usize,
        make: impl Send + FnOnce(&Renderer, Limits) -> Result<Prepared, ApiError>,
    ) -> PyResult<PyPrepared> {
        let limits = Limits {
            max_model_len,
            vocab_size,
        };
        let prepared = py
            .detach(|| make(&self.renderer, limits))
            .map_err(|error| refused(&error))?;
        Ok(PyPrepared {
            renderer: Arc::clone(&self.renderer),
            prepared,
        })
    }
}

/// A rendered request.
#[pyclass(name = "Prepared", module = "octavo_native", frozen)]
pub(crate) struct PyPrepared {
    renderer: Arc<Renderer>,
    prepared: Prepared,
}

#[pymethods]
impl PyPrepared {
    /// Token ids, packed little-endian int32.
    #[getter]
    fn prompt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let ids = &self.prepared.prompt;
        PyBytes::new_with(py, 4 * ids.len(), |packed| {
            let (places, _) = packed.as_chunks_mut();
            for (place, id) in places.iter_mut().zip(ids) {
                *place = id.to_le_bytes();
            }
            Ok(())
        })
    }

    /// Outputs that are asked for.
    #[getter]
    fn n(&self) -> u32 {
        self.prepared.n
    }

    /// The parameters of output `index`: the wire's record, as `MessagePack`.
    fn sampling<'py>(&self, py: Python<'py>, index: u32) -> Bound<'py, PyBytes> {
        let mut packed = Vec::new();
        self.prepared
            .child(index)
            .write(&mut Writer::new(&mut packed));
        PyBytes::new(py, &packed)
    }

    /// What the output must be, as the wire's record: kind and text.
    #[getter]
    fn grammar(&self) -> Option<(String, String)> {
        let grammar = self.prepared.grammar.as_ref()?;
        Some((grammar.kind.clone(), grammar.text.clone()))
    }

    fn output(&self) -> PyOutputText {
        PyOutputText {
            output: self.renderer.output(&self.prepared.output),
        }
    }
}

/// Text of one output, as its tokens come.
#[pyclass(name = "OutputText", module = "octavo_native")]
pub(crate) struct PyOutputText {
    output: octavo_render::OutputText,
}

#[pymethods]
impl PyOutputText {
    /// A step takes microseconds: less than giving the interpreter away and taking it back.
    #[pyo3(signature = (tokens, reason=None, stop_token=None))]
    fn advance(
        &mut self,
        tokens: &[u8],
        reason: Option<String>,
        stop_token: Option<i32>,
    ) -> PyResult<(String, Option<EndTuple>)> {
        let (ids, rest) = tokens.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(PyValueError::new_err(format!(
                "tokens has {} bytes; it must hold 4 for each id",
                tokens.len()
            )));
        }
        let ids: Vec<i32> = ids.iter().map(|id| i32::from_le_bytes(*id)).collect();
        let finish = reason.map(|reason| Finish {
            reason,
            stop_token,
            message: None,
        });
        let update = self.output.advance(&ids, finish.as_ref());
        let end = update.end.map(|end| {
            let stop = end.stop_reason.map(|reason| match reason {
                StopReason::Token(id) => StopValue::Token(id),
                StopReason::Text(text) => StopValue::Text(text),
            });
            (name(end.reason), stop, end.completion_tokens)
        });
        Ok((update.text, end))
    }
}

fn name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Repetition => "repetition",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Abort => "abort",
        FinishReason::Error => "error",
    }
}

fn refused(error: &ApiError) -> PyErr {
    RenderError::new_err((error.message.clone(), error.code, error.param.clone()))
}
