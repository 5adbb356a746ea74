//! Messages as native formats read them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::RenderError;

/// One message of a conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) index: usize,
    pub(super) fields: &'a Map<String, Value>,
    pub(super) role: &'a str,
}

/// A call of a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) name: &'a str,
    pub(super) arguments: Option<&'a Value>,
}

/// All messages.
pub(super) fn turns(messages: &[Arc<Value>]) -> Result<Vec<Turn<'_>>, RenderError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            let fields = message
                .as_object()
                .ok_or_else(|| refuse(index, "must be an object"))?;
            let role = fields.get("role").and_then(Value::as_str);
            let role = role.ok_or_else(|| refuse(index, "has no role"))?;
            Ok(Turn {
                index,
                fields,
                role,
            })
        })
        .collect()
}

/// An error at a message.
pub(super) fn refuse(index: usize, reason: &str) -> RenderError {
    RenderError::Refused(format!("messages.{index} {reason}."))
}

impl<'a> Turn<'a> {
    /// An error at this message.
    pub(super) fn refuse(&self, reason: &str) -> RenderError {
        refuse(self.index, reason)
    }

    /// A field that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A field that is a string.
    pub(super) fn string(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    /// The content as one text: null is empty, text parts are joined by `glue`.
    pub(super) fn text(&self, glue: &str) -> Result<String, RenderError> {
        match self.get("content") {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Array(parts)) => {
                let texts: Option<Vec<&str>> = parts
                    .iter()
                    .map(|part| {
                        part.as_str()
                            .or_else(|| part.get("text").and_then(Value::as_str))
                    })
                    .collect();
                let texts = texts.ok_or_else(|| self.refuse("has a part that is no text"))?;
                Ok(texts.join(glue))
            }
            Some(_) => Err(self.refuse("has a content that is neither text nor parts")),
        }
    }

    /// The calls of tools.
    pub(super) fn calls(&self) -> Result<Vec<Call<'a>>, RenderError> {
        let Some(Value::Array(calls)) = self.get("tool_calls") else {
            return Ok(Vec::new());
        };
        calls
            .iter()
            .map(|call| {
                let function = call.get("function").unwrap_or(call);
                let name = function.get("name").and_then(Value::as_str);
                let name = name.ok_or_else(|| self.refuse("has a tool call without a name"))?;
                Ok(Call {
                    id: call.get("id").and_then(Value::as_str),
                    name,
                    arguments: function.get("arguments").filter(|value| !value.is_null()),
                })
            })
            .collect()
    }

    /// A call's arguments as an object; text is parsed.
    pub(super) fn object(&self, call: Call<'_>) -> Result<Map<String, Value>, RenderError> {
        let fail = || {
            self.refuse(&format!(
                "calls {} with arguments that are no JSON object",
                call.name
            ))
        };
        match call.arguments {
            None => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields.clone()),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(Map::new()),
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| fail()),
            Some(_) => Err(fail()),
        }
    }
}

/// The functions among tools.
pub(super) fn functions(tools: Option<&[Value]>) -> Vec<&Map<String, Value>> {
    let function = |tool: &'_ Value| tool.get("type").is_none_or(|kind| kind == "function");
    tools
        .unwrap_or_default()
        .iter()
        .filter(|tool| function(tool))
        .filter_map(|tool| tool.get("function").unwrap_or(tool).as_object())
        .collect()
}
