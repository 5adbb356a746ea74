//! Events and messages of the parser as Python sees them.

use octavo_parser::{Event, Finish, Malformed, Message, ToolCall};
use pyo3::prelude::*;

/// One event.
#[pyclass(name = "Event", module = "octavo_native", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyEvent(pub(crate) Event);

#[pymethods]
impl PyEvent {
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.0 {
            Event::ReasoningDelta { .. } => "reasoning",
            Event::ContentDelta { .. } => "content",
            Event::CallOpen { .. } => "call",
            Event::ArgsDelta { .. } => "arguments",
            Event::CallClose { .. } => "close",
            Event::Malformed { .. } => "malformed",
            Event::End { .. } => "end",
        }
    }

    #[getter]
    fn text(&self) -> Option<&str> {
        match &self.0 {
            Event::ReasoningDelta { text, .. } | Event::ContentDelta { text } => Some(text),
            Event::ArgsDelta { json, .. } => Some(json),
            Event::Malformed { raw, .. } => Some(raw),
            _ => None,
        }
    }

    #[getter]
    fn tokens(&self) -> Option<u32> {
        match &self.0 {
            Event::ReasoningDelta { tokens, .. } => Some(*tokens),
            _ => None,
        }
    }

    #[getter]
    fn index(&self) -> Option<usize> {
        match &self.0 {
            Event::CallOpen { index, .. }
            | Event::ArgsDelta { index, .. }
            | Event::CallClose { index } => Some(*index),
            _ => None,
        }
    }

    #[getter]
    fn id(&self) -> Option<&str> {
        match &self.0 {
            Event::CallOpen { id, .. } => Some(id),
            _ => None,
        }
    }

    #[getter]
    fn name(&self) -> Option<&str> {
        match &self.0 {
            Event::CallOpen { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Why: of malformed text, and of the end.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        match &self.0 {
            Event::Malformed { kind, .. } => Some(match kind {
                Malformed::Stray => "stray",
                Malformed::Name => "name",
                Malformed::UnknownTool => "unknown_tool",
                Malformed::Parameter => "parameter",
                Malformed::Arguments => "arguments",
                Malformed::Cut => "cut",
                Malformed::Header => "header",
            }),
            Event::End { finish } => Some(match finish {
                Finish::Stop => "stop",
                Finish::Length => "length",
                Finish::Abort => "abort",
            }),
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        let fields = [
            self.index().map(|index| format!("index={index}")),
            self.name().map(|name| format!("name={name:?}")),
            self.id().map(|id| format!("id={id:?}")),
            self.reason().map(|reason| format!("reason={reason:?}")),
            self.text().map(|text| format!("text={text:?}")),
        ];
        let fields: Vec<String> = fields.into_iter().flatten().collect();
        format!("Event({}: {})", self.kind(), fields.join(", "))
    }
}

/// One call of a message.
#[pyclass(name = "ToolCall", module = "octavo_native", frozen, get_all)]
#[derive(Clone)]
pub(crate) struct PyToolCall {
    id: String,
    name: String,
    arguments: String,
}

#[pymethods]
impl PyToolCall {
    fn __repr__(&self) -> String {
        format!(
            "ToolCall(name={:?}, arguments={:?})",
            self.name, self.arguments
        )
    }
}

impl From<ToolCall> for PyToolCall {
    fn from(call: ToolCall) -> Self {
        Self {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        }
    }
}

/// Everything that a model said.
#[pyclass(name = "Message", module = "octavo_native", frozen, get_all)]
pub(crate) struct PyMessage {
    content: String,
    reasoning: String,
    calls: Vec<PyToolCall>,
    malformed: String,
}

#[pymethods]
impl PyMessage {
    fn __repr__(&self) -> String {
        let calls: Vec<String> = self.calls.iter().map(PyToolCall::__repr__).collect();
        format!(
            "Message(content={:?}, reasoning={:?}, calls=[{}])",
            self.content,
            self.reasoning,
            calls.join(", ")
        )
    }
}

impl From<Message> for PyMessage {
    fn from(said: Message) -> Self {
        Self {
            content: said.content,
            reasoning: said.reasoning,
            calls: said.calls.into_iter().map(PyToolCall::from).collect(),
            malformed: said.malformed,
        }
    }
}
