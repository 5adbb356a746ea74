//! Conversations to text: with a model's template, and with any template.

use std::sync::Arc;

use octavo_render::{ChatTemplate, Clock, Conversation, TemplateError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::parsing::json;
use crate::rendering::RenderError;

/// The fields of a chat's body from messages, tools and further fields.
pub(crate) fn body(
    messages: &Bound<'_, PyAny>,
    tools: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<Map<String, Value>> {
    let mut body: Map<String, Value> = match fields {
        Some(fields) => json(fields.as_any(), "fields")?,
        None => Map::new(),
    };
    body.insert("messages".to_owned(), json(messages, "messages")?);
    if let Some(tools) = tools.filter(|tools| !tools.is_none()) {
        body.insert("tools".to_owned(), json(tools, "tools")?);
    }
    Ok(body)
}

/// The text that a template gives for a case: what a line of a template oracle holds.
#[pyfunction]
pub(crate) fn render_template(
    py: Python<'_>,
    template_text: &str,
    case: &Bound<'_, PyDict>,
) -> PyResult<String> {
    let mut case: Map<String, Value> = json(case.as_any(), "case")?;
    let clock = clock(&case)?;
    let conversation = conversation(&mut case)?;
    py.detach(|| {
        let template = ChatTemplate::compile("template_text", template_text, clock)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        template.render(&conversation).map_err(|error| {
            let code = match error {
                TemplateError::Refused(_) => "refused",
                _ => "failed",
            };
            RenderError::new_err((error.to_string(), code, None::<String>))
        })
    })
}

fn clock(case: &Map<String, Value>) -> PyResult<Clock> {
    match case.get("now") {
        None | Some(Value::Null) => Ok(Clock::System),
        Some(now) => now
            .as_str()
            .and_then(Clock::fixed)
            .ok_or_else(|| wrong("now", "a time such as 2026-03-04T05:06:07", now)),
    }
}

/// Of names that stand in several places the last holds: special, kwargs, `chat_template_kwargs`.
fn conversation(case: &mut Map<String, Value>) -> PyResult<Conversation> {
    let mut variables = Map::new();
    for name in ["special", "kwargs", "chat_template_kwargs"] {
        match case.remove(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(more)) => variables.extend(more),
            Some(other) => return Err(wrong(name, "a dict", &other)),
        }
    }
    // What is served is what the template was given.
    let messages = match list(case, "conversation")? {
        Some(prepared) => Some(prepared),
        None => list(case, "messages")?,
    };
    let messages = messages.ok_or_else(|| PyValueError::new_err("case has no \"messages\""))?;
    Ok(Conversation {
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: list(case, "tools")?,
        documents: list(case, "documents")?,
        add_generation_prompt: flag(case, "add_generation_prompt")?,
        continue_final_message: flag(case, "continue_final_message")?,
        variables,
    })
}

fn list(case: &mut Map<String, Value>, name: &str) -> PyResult<Option<Vec<Value>>> {
    match case.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(wrong(name, "a list", &other)),
    }
}

fn flag(case: &Map<String, Value>, name: &str) -> PyResult<bool> {
    match case.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(name, "a bool", other)),
    }
}

fn wrong(name: &str, wanted: &str, got: &Value) -> PyErr {
    let got: String = got.to_string().chars().take(60).collect();
    PyValueError::new_err(format!("case[\"{name}\"] must be {wanted}; got {got}"))
}
