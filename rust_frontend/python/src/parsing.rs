//! The streaming parser of reasoning and tool calls for Python.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use octavo_grammar::{
    Calls, ChoiceNone, Format, Found, Grammar, RESPONSE_TEMPLATE, Registry, UnknownName,
};
use octavo_parser::{Detokenize, Finish, Machine, Message, Options, Parser, Source, Start, Tools};
use octavo_tokenizer::IncrementalDecoder;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use serde_json::Value;

use crate::events::{PyEvent, PyMessage};
use crate::rendering::PyRenderer;
use crate::values;

/// Below this many bytes, parsing takes less time than giving the interpreter away and taking it back.
const DETACH_BYTES: usize = 4 * 1024;

/// Detokenizes for the parser.
struct Decoder(IncrementalDecoder);

impl Detokenize for Decoder {
    fn push(&mut self, id: u32, out: &mut String) {
        self.0.push(&[id], out);
    }

    fn flush(&mut self, out: &mut String) {
        self.0.finish(out);
    }
}

/// Parses one answer as it comes.
#[pyclass(name = "Parser", module = "octavo_native")]
pub(crate) struct PyParser {
    parser: Parser,
    ids: Option<Source<Decoder>>,
}

#[pymethods]
impl PyParser {
    #[new]
    #[pyo3(signature = (tool=None, reasoning=None, tools=None, start=None, tool_choice=None, *, parallel=true,
        format_files=Vec::new(), renderer=None),
        text_signature = "(tool=None, reasoning=None, tools=None, start=None, tool_choice='auto', *, parallel=True, \
        format_files=(), renderer=None)")]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        tool: Option<PyBackedStr>,
        reasoning: Option<PyBackedStr>,
        tools: Option<&Bound<'_, PyAny>>,
        start: Option<&str>,
        tool_choice: Option<&Bound<'_, PyAny>>,
        parallel: bool,
        format_files: Vec<PathBuf>,
        renderer: Option<PyRef<'_, PyRenderer>>,
    ) -> PyResult<Self> {
        let names = Names {
            tool: tool.as_deref(),
            reasoning: reasoning.as_deref(),
            files: &format_files,
        };
        let renderer = renderer.as_deref();
        let (machine, options) = setup(&names, tools, start, tool_choice, parallel, renderer)?;
        Ok(Self {
            parser: Parser::new(&machine, options),
            ids: renderer.map(|renderer| {
                let (specials, decoder) = renderer.detokenizer();
                Source::new(specials, Decoder(decoder))
            }),
        })
    }

    /// Takes a piece of text, or token ids.
    fn feed(&mut self, py: Python<'_>, piece: &Bound<'_, PyAny>) -> PyResult<Vec<PyEvent>> {
        let events = if let Ok(text) = piece.extract::<PyBackedStr>() {
            if text.len() < DETACH_BYTES {
                self.parser.feed(&text)
            } else {
                py.detach(|| self.parser.feed(&text))
            }
        } else {
            let ids: Vec<u32> = piece
                .extract()
                .map_err(|_| PyTypeError::new_err("feed takes a str or a list of token ids"))?;
            let source = self.ids.as_mut().ok_or_else(|| {
                PyValueError::new_err(
                    "token ids need a vocabulary: give the parser a renderer, as in Parser(..., renderer=Renderer(folder))",
                )
            })?;
            py.detach(|| source.feed(&mut self.parser, &ids))
        };
        Ok(events.into_iter().map(PyEvent).collect())
    }

    /// Ends the answer.
    #[pyo3(signature = (finish="stop"))]
    fn finish(&mut self, finish: &str) -> PyResult<Vec<PyEvent>> {
        let finish = finish_of(finish)?;
        if let Some(source) = &mut self.ids {
            source.flush(&mut self.parser);
        }
        let events = self.parser.finish(finish);
        Ok(events.into_iter().map(PyEvent).collect())
    }

    /// Whether the one call that was wanted is complete.
    #[getter]
    fn done(&self) -> bool {
        self.parser.is_done()
    }
}

/// Parses a whole text.
#[pyfunction]
#[pyo3(signature = (text, tool=None, reasoning=None, tools=None, start=None, tool_choice=None, *, parallel=true,
    format_files=Vec::new(), renderer=None, finish="stop"),
    text_signature = "(text, tool=None, reasoning=None, tools=None, start=None, tool_choice='auto', *, parallel=True, \
    format_files=(), renderer=None, finish='stop')")]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn parse(
    py: Python<'_>,
    text: PyBackedStr,
    tool: Option<PyBackedStr>,
    reasoning: Option<PyBackedStr>,
    tools: Option<&Bound<'_, PyAny>>,
    start: Option<&str>,
    tool_choice: Option<&Bound<'_, PyAny>>,
    parallel: bool,
    format_files: Vec<PathBuf>,
    renderer: Option<PyRef<'_, PyRenderer>>,
    finish: &str,
) -> PyResult<PyMessage> {
    let names = Names {
        tool: tool.as_deref(),
        reasoning: reasoning.as_deref(),
        files: &format_files,
    };
    let finish = finish_of(finish)?;
    let renderer = renderer.as_deref();
    let (machine, options) = setup(&names, tools, start, tool_choice, parallel, renderer)?;
    let message: Message = py.detach(|| octavo_parser::parse(&machine, options, &text, finish));
    Ok(PyMessage::from(message))
}

/// The formats that ship, by the names that choose them: of tool calls, of reasoning.
#[pyfunction]
pub(crate) fn parser_names() -> PyResult<(Vec<String>, Vec<String>)> {
    let formats = builtin()?.formats();
    let names = |of: fn(&Format) -> &[String]| {
        let mut names: Vec<String> = formats.iter().flat_map(of).cloned().collect();
        names.sort();
        names.dedup();
        names
    };
    Ok((
        names(|format| &format.tool),
        names(|format| &format.reasoning),
    ))
}

/// Which formats are asked for.
struct Names<'a> {
    tool: Option<&'a str>,
    reasoning: Option<&'a str>,
    files: &'a [PathBuf],
}

impl Names<'_> {
    /// Finds a format, `auto` by what the renderer's model is like.
    fn find<'r>(
        name: Option<&str>,
        detected: impl FnOnce() -> PyResult<Option<String>>,
        find: impl FnOnce(&str) -> Result<&'r Format, UnknownName>,
    ) -> PyResult<Option<&'r Format>> {
        let found = match name {
            Some("auto") => detected()?,
            other => other.map(str::to_owned),
        };
        found
            .map(|name| find(&name))
            .transpose()
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

fn builtin() -> PyResult<&'static Registry> {
    static BUILTIN: OnceLock<Result<Registry, String>> = OnceLock::new();
    BUILTIN
        .get_or_init(|| Registry::builtin().map_err(|error| error.to_string()))
        .as_ref()
        .map_err(|error| PyValueError::new_err(error.clone()))
}

/// The formats that ship, and those of these files.
fn registry(files: &[PathBuf]) -> PyResult<Registry> {
    let mut registry = builtin()?.clone();
    for file in files {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|error| PyValueError::new_err(format!("format file {shown}: {error}")))?;
        registry
            .add(&shown, &text)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    Ok(registry)
}

fn setup(
    names: &Names<'_>,
    tools: Option<&Bound<'_, PyAny>>,
    start: Option<&str>,
    tool_choice: Option<&Bound<'_, PyAny>>,
    parallel: bool,
    renderer: Option<&PyRenderer>,
) -> PyResult<(Arc<Machine>, Options)> {
    let mut registry = registry(names.files)?;
    if let Some(renderer) = renderer {
        own_template(names, renderer, &mut registry)?;
    }
    let detect = || {
        let renderer = renderer.ok_or_else(|| {
            PyValueError::new_err(
                "auto needs a model to look at: give a renderer, or name the parser",
            )
        })?;
        Ok::<_, PyErr>(renderer.detect(&registry))
    };
    let tool = Names::find(
        names.tool,
        || Ok(name_of(detect()?.tool, &registry, Registry::tool)),
        |name| registry.find_tool(name),
    )?;
    let reasoning = Names::find(
        names.reasoning,
        || Ok(name_of(detect()?.reasoning, &registry, Registry::reasoning)),
        |name| registry.find_reasoning(name),
    )?;
    let tools: Option<Vec<Value>> = tools.map(|tools| json(tools, "tools")).transpose()?;
    let wanted = choice(tool_choice)? && tools.as_ref().is_none_or(|tools| !tools.is_empty());
    let calls = match tool.map(|tool| tool.choice_none) {
        Some(_) if wanted => Calls::Parse,
        Some(ChoiceNone::Drop) => Calls::Drop,
        _ => Calls::Text,
    };
    let machine = Machine::new(Grammar::compose(tool, reasoning, calls, true));
    let options = Options {
        tools: tools.map_or_else(Tools::default, |tools| Tools::from_json(&tools)),
        start: match start {
            None => Start::Default,
            Some("content") => Start::Content,
            Some("reasoning") => Start::Reasoning,
            Some(prompt) => Start::After(prompt.to_owned()),
        },
        parallel,
        // The keys of the standard hasher are the system's random numbers: ids of calls differ between answers.
        seed: RandomState::new().hash_one(0_u8),
        ..Options::default()
    };
    Ok((machine, options))
}

/// Adds the model's response template where it may be wanted. One that cannot be read matters only where it is asked for.
fn own_template(names: &Names<'_>, renderer: &PyRenderer, registry: &mut Registry) -> PyResult<()> {
    let asked = [names.tool, names.reasoning];
    let by_name = asked.contains(&Some(RESPONSE_TEMPLATE));
    if !by_name && !asked.contains(&Some("auto")) {
        return Ok(());
    }
    match renderer.response_template() {
        Some(Ok(format)) => {
            registry.insert(format);
        }
        Some(Err(error)) if by_name => return Err(PyValueError::new_err(error.to_string())),
        Some(Err(_)) | None => {}
    }
    Ok(())
}

/// The name of what `auto` found, or of the model's response template.
fn name_of<'r>(
    found: Option<Found>,
    registry: &'r Registry,
    named: fn(&'r Registry, &str) -> Option<&'r Format>,
) -> Option<String> {
    found
        .map(|found| found.name)
        .or_else(|| named(registry, RESPONSE_TEMPLATE).map(|_| RESPONSE_TEMPLATE.to_owned()))
}

/// Whether calls are calls under this `tool_choice`.
fn choice(value: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let Some(value) = value else { return Ok(true) };
    match json::<Value>(value, "tool_choice")? {
        Value::String(word) if word == "none" => Ok(false),
        Value::String(word) if word == "auto" || word == "required" => Ok(true),
        Value::Object(named) if named.contains_key("function") => Ok(true),
        other => Err(PyValueError::new_err(format!(
            "tool_choice is {other}; it must be \"auto\", \"none\", \"required\" or {{\"type\": \"function\", ...}}"
        ))),
    }
}

fn finish_of(word: &str) -> PyResult<Finish> {
    match word {
        "stop" => Ok(Finish::Stop),
        "length" => Ok(Finish::Length),
        "abort" => Ok(Finish::Abort),
        other => Err(PyValueError::new_err(format!(
            "finish is {other:?}; it must be \"stop\", \"length\" or \"abort\""
        ))),
    }
}

/// A Python value as JSON.
pub(crate) fn json<T: serde::de::DeserializeOwned>(
    value: &Bound<'_, PyAny>,
    name: &str,
) -> PyResult<T> {
    let wrong = |error| PyValueError::new_err(format!("{name}: {error}"));
    if let Some(plain) = values::plain(value, 0) {
        return serde_json::from_value(plain).map_err(wrong);
    }
    let text: PyBackedStr = value
        .py()
        .import("json")?
        .call_method1("dumps", (value,))?
        .extract()?;
    serde_json::from_str(&text).map_err(wrong)
}
