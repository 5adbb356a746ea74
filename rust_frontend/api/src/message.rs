//! Messages of a conversation.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field::{self, shown};
use crate::shared::SharedMessage;

/// Kinds of content parts that hold something other than text; octavo reads text.
const MEDIA: [&str; 10] = [
    "image_url",
    "image",
    "image_pil",
    "image_embeds",
    "input_image",
    "input_audio",
    "audio_url",
    "audio_embeds",
    "video_url",
    "file",
];

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One string.
    Text(String),
    /// Text parts, in order.
    Parts(Vec<String>),
}

/// One message, checked in form; chat templates judge the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// "system", "user", "assistant", "tool", "developer" or what a template knows.
    pub role: String,
    /// `None` where it is absent or null, which only an assistant may leave.
    pub content: Option<Content>,
    /// All other fields as they came (name, `tool_calls`, `tool_call_id`, reasoning, ...), in their order.
    pub rest: Map<String, Value>,
}

impl Message {
    /// Reads all messages.
    pub(crate) fn take_all(
        fields: &mut Map<String, Value>,
    ) -> Result<Vec<Arc<SharedMessage>>, ApiError> {
        let items =
            field::list(fields, "messages")?.ok_or_else(|| ApiError::missing("messages"))?;
        if items.is_empty() {
            return Err(ApiError::invalid(
                "messages",
                "'messages' must hold at least one message; got none.",
            ));
        }
        items
            .into_iter()
            .enumerate()
            .map(|(index, item)| Ok(Arc::new(Self::read(index, item)?.into())))
            .collect()
    }

    /// Reads one message; `index` is for what is said of it.
    pub(crate) fn read(index: usize, item: Value) -> Result<Self, ApiError> {
        let path = format!("messages.{index}");
        let mut rest = match item {
            Value::Object(fields) => fields,
            other => {
                return Err(field::wrong(
                    &path,
                    "an object with role and content",
                    &other,
                ));
            }
        };
        let role = match rest.shift_remove("role") {
            Some(Value::String(role)) if !role.is_empty() => role,
            None | Some(Value::Null) => return Err(ApiError::missing(&format!("{path}.role"))),
            Some(other) => {
                return Err(field::wrong(
                    &format!("{path}.role"),
                    "a name such as \"user\"",
                    &other,
                ));
            }
        };
        let content = content(&path, &role, rest.shift_remove("content"))?;
        check_rest(&path, &rest)?;
        Ok(Self {
            role,
            content,
            rest,
        })
    }
}

fn content(path: &str, role: &str, value: Option<Value>) -> Result<Option<Content>, ApiError> {
    let path = format!("{path}.content");
    match value {
        None | Some(Value::Null) if role == "assistant" => Ok(None),
        None => Err(ApiError::missing(&path)),
        Some(Value::String(text)) => Ok(Some(Content::Text(text))),
        Some(Value::Array(parts)) => {
            let parts = parts
                .into_iter()
                .enumerate()
                .map(|(index, part)| text_part(&path, index, part));
            Ok(Some(Content::Parts(parts.collect::<Result<_, _>>()?)))
        }
        Some(other) => {
            let wanted = if role == "assistant" {
                "a string, a list of text parts or null"
            } else {
                "a string or a list of text parts"
            };
            Err(field::wrong(&path, wanted, &other))
        }
    }
}

fn text_part(path: &str, index: usize, part: Value) -> Result<String, ApiError> {
    let path = format!("{path}.{index}");
    let mut fields = match part {
        Value::Object(fields) => fields,
        Value::String(text) => return Ok(text),
        other => {
            return Err(field::wrong(
                &path,
                "a part such as {\"type\": \"text\", \"text\": \"...\"}",
                &other,
            ));
        }
    };
    let kind = match fields.shift_remove("type") {
        Some(Value::String(kind)) => kind,
        None if fields.contains_key("text") => "text".to_owned(),
        other => {
            let message = format!(
                "'{path}.type' must be a string such as \"text\"; got {}.",
                shown(&other.unwrap_or_default())
            );
            return Err(ApiError::invalid(format!("{path}.type"), message));
        }
    };
    let key = match kind.as_str() {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        media if MEDIA.contains(&media) => {
            let message = format!(
                "Content parts of type \"{media}\" are not supported: this server reads text only."
            );
            return Err(ApiError::unsupported(path, message));
        }
        unknown => {
            let message = format!("'{path}.type' must be \"text\"; got \"{unknown}\".");
            return Err(ApiError::invalid(format!("{path}.type"), message));
        }
    };
    match fields.shift_remove(key) {
        Some(Value::String(text)) => Ok(text),
        None => Err(ApiError::missing(&format!("{path}.{key}"))),
        Some(other) => Err(field::wrong(&format!("{path}.{key}"), "a string", &other)),
    }
}

/// Checks the form of the fields that templates and the renderer lean on.
fn check_rest(path: &str, rest: &Map<String, Value>) -> Result<(), ApiError> {
    for name in ["name", "tool_call_id", "reasoning", "reasoning_content"] {
        if let Some(value) = rest
            .get(name)
            .filter(|value| !value.is_string() && !value.is_null())
        {
            return Err(field::wrong(&format!("{path}.{name}"), "a string", value));
        }
    }
    let calls = match rest.get("tool_calls") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(other) => return Err(field::wrong(&format!("{path}.tool_calls"), "a list", other)),
    };
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}.tool_calls.{index}");
        let function = call.get("function").and_then(Value::as_object);
        let Some(function) = function else {
            return Err(field::wrong(
                &path,
                "an object with id, type and function",
                call,
            ));
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(ApiError::missing(&format!("{path}.function.name")));
        }
        match function.get("arguments") {
            None | Some(Value::Null | Value::String(_) | Value::Object(_)) => {}
            Some(other) => {
                return Err(field::wrong(
                    &format!("{path}.function.arguments"),
                    "a JSON object as a string",
                    other,
                ));
            }
        }
    }
    Ok(())
}
