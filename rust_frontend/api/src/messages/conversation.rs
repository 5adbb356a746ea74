//! Anthropic's turns of blocks as the messages of a chat.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::field::{self, wrong};
use crate::shared::SharedMessage;
use crate::turns::Turn;

/// Kinds of blocks that hold something other than text.
const MEDIA: [&str; 2] = ["image", "document"];

/// A conversation, and whether the answer goes on with its last message.
pub(super) struct Conversation {
    pub(super) messages: Vec<Arc<SharedMessage>>,
    pub(super) prefilled: bool,
}

impl Conversation {
    /// Reads `system` and `messages`. Neighbours of one role are one turn, as in Anthropic's API; the results of tools are
    /// turns of their own.
    pub(super) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let mut turns = Vec::new();
        if let Some(system) = field::take(fields, "system") {
            let parts = texts("system", system)?;
            turns.push(Turn::new("system", parts));
        }
        let items =
            field::list(fields, "messages")?.ok_or_else(|| ApiError::missing("messages"))?;
        if items.is_empty() {
            let message = "'messages' must hold at least one message; got none.";
            return Err(ApiError::invalid("messages", message));
        }
        let last = items.len() - 1;
        for (index, item) in items.into_iter().enumerate() {
            read(&mut turns, index, item)?;
        }
        let end = turns.last().filter(|turn| turn.role == "assistant");
        if end.is_some_and(|turn| !turn.calls.is_empty()) {
            let message = format!(
                "'messages.{last}' ends with calls of tools. Send their results in a user message with tool_result blocks."
            );
            return Err(ApiError::invalid(format!("messages.{last}"), message));
        }
        Ok(Self {
            prefilled: end.is_some_and(|turn| !turn.parts.is_empty()),
            messages: turns.into_iter().map(Turn::into_shared).collect(),
        })
    }
}

/// The turn of a role that blocks are added to: the last one, if it is of that role.
fn turn<'a>(turns: &'a mut Vec<Turn>, role: &str) -> Option<&'a mut Turn> {
    if turns.last().is_none_or(|last| last.role != role) {
        turns.push(Turn::new(role, Vec::new()));
    }
    turns.last_mut()
}

fn read(turns: &mut Vec<Turn>, index: usize, item: Value) -> Result<(), ApiError> {
    let path = format!("messages.{index}");
    let Value::Object(mut fields) = item else {
        return Err(wrong(&path, "an object with role and content", &item));
    };
    let role = match fields.shift_remove("role") {
        Some(Value::String(role)) => role,
        None | Some(Value::Null) => return Err(ApiError::missing(&format!("{path}.role"))),
        Some(other) => return Err(wrong(&format!("{path}.role"), "a string", &other)),
    };
    if !["user", "assistant", "system"].contains(&role.as_str()) {
        let wanted = "\"user\", \"assistant\" or \"system\"";
        return Err(wrong(&format!("{path}.role"), wanted, &Value::String(role)));
    }
    let path = format!("{path}.content");
    match fields.shift_remove("content") {
        Some(Value::String(text)) => {
            if let Some(turn) = turn(turns, &role) {
                turn.parts.push(text);
            }
            Ok(())
        }
        Some(Value::Array(blocks)) if blocks.is_empty() && role != "assistant" => {
            let message = format!("'{path}' must hold at least one block; got none.");
            Err(ApiError::invalid(path, message))
        }
        Some(Value::Array(blocks)) => {
            for (index, block) in blocks.into_iter().enumerate() {
                add(turns, &role, &format!("{path}.{index}"), block)?;
            }
            Ok(())
        }
        None | Some(Value::Null) => Err(ApiError::missing(&path)),
        Some(other) => Err(wrong(&path, "a string or a list of blocks", &other)),
    }
}

/// Adds one block to the conversation.
fn add(turns: &mut Vec<Turn>, role: &str, path: &str, block: Value) -> Result<(), ApiError> {
    let (kind, mut fields) = kind(path, block)?;
    let within = |error: ApiError| error.inside(path);
    let mut text = |name: &str| {
        let text = field::string(&mut fields, name).map_err(within)?;
        text.ok_or_else(|| ApiError::missing(&format!("{path}.{name}")))
    };
    match (kind.as_str(), role) {
        ("text", _) => {
            let text = text("text")?;
            if let Some(turn) = turn(turns, role) {
                turn.parts.push(text);
            }
        }
        ("thinking", "assistant") => {
            let thoughts = text("thinking")?;
            if let Some(turn) = turn(turns, role).filter(|_| !thoughts.is_empty()) {
                turn.thoughts.push(thoughts);
            }
        }
        // Thoughts that only their author can read.
        ("redacted_thinking", "assistant") => {}
        ("tool_use", "assistant") => {
            let call = call(path, fields)?;
            if let Some(turn) = turn(turns, role) {
                turn.calls.push(call);
            }
        }
        ("tool_result", "user") => turns.push(result(path, fields)?),
        ("thinking" | "redacted_thinking" | "tool_use" | "tool_result", _) => {
            let message = format!(
                "'{path}' is a block of type \"{kind}\", which a {role} message cannot hold."
            );
            return Err(ApiError::invalid(path, message));
        }
        _ => return Err(unread(path, &kind)),
    }
    Ok(())
}

/// The type of a block, and its other fields.
fn kind(path: &str, block: Value) -> Result<(String, Map<String, Value>), ApiError> {
    let wanted = "a block such as {\"type\": \"text\", \"text\": \"...\"}";
    let Value::Object(mut fields) = block else {
        return Err(wrong(path, wanted, &block));
    };
    match fields.shift_remove("type") {
        Some(Value::String(kind)) => Ok((kind, fields)),
        None | Some(Value::Null) => Err(ApiError::missing(&format!("{path}.type"))),
        Some(other) => Err(wrong(
            &format!("{path}.type"),
            "a string such as \"text\"",
            &other,
        )),
    }
}

/// A block that is not read here.
fn unread(path: &str, kind: &str) -> ApiError {
    if MEDIA.contains(&kind) {
        let message =
            format!("Blocks of type \"{kind}\" are not supported: this server reads text only.");
        return ApiError::unsupported(path, message);
    }
    let kind = field::shown(&Value::from(kind));
    let message = format!(
        "Blocks of type {kind} are not supported; known are text, thinking, redacted_thinking, tool_use and tool_result."
    );
    ApiError::unsupported(path, message)
}

fn call(path: &str, mut fields: Map<String, Value>) -> Result<Value, ApiError> {
    let within = |error: ApiError| error.inside(path);
    let mut name = |name: &str| {
        let given = field::string(&mut fields, name).map_err(within)?;
        given
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ApiError::missing(&format!("{path}.{name}")))
    };
    let (id, name) = (name("id")?, name("name")?);
    let input = field::object(&mut fields, "input").map_err(within)?;
    let input = input.ok_or_else(|| ApiError::missing(&format!("{path}.input")))?;
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}))
}

/// The result of a tool, as a turn of its own. That it is an error is said in its text, since no template knows more.
fn result(path: &str, mut fields: Map<String, Value>) -> Result<Turn, ApiError> {
    let within = |error: ApiError| error.inside(path);
    let id = field::string(&mut fields, "tool_use_id").map_err(within)?;
    let failed = field::boolean(&mut fields, "is_error").map_err(within)?;
    let mut parts = match field::take(&mut fields, "content") {
        None => Vec::new(),
        Some(content) => texts(&format!("{path}.content"), content)?,
    };
    if failed == Some(true) {
        parts.insert(0, "Error:".to_owned());
    }
    Ok(Turn {
        answers: Some(id.ok_or_else(|| ApiError::missing(&format!("{path}.tool_use_id")))?),
        ..Turn::new("tool", parts)
    })
}

/// A string or a list of text blocks.
fn texts(path: &str, value: Value) -> Result<Vec<String>, ApiError> {
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(blocks) => {
            let read = |(index, block): (usize, Value)| {
                let path = format!("{path}.{index}");
                let (kind, mut fields) = kind(&path, block)?;
                if kind != "text" {
                    return Err(unread(&path, &kind));
                }
                let text =
                    field::string(&mut fields, "text").map_err(|error| error.inside(&path))?;
                text.ok_or_else(|| ApiError::missing(&format!("{path}.text")))
            };
            blocks.into_iter().enumerate().map(read).collect()
        }
        other => Err(wrong(path, "a string or a list of text blocks", &other)),
    }
}
