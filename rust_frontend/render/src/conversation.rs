//! Messages as clients send them to messages as templates read them.

use std::sync::Arc;

use octavo_api::{Content, Message, SharedMessage};
use serde_json::{Map, Value, json};

use crate::format::ContentFormat;

/// Prepares all messages. `developer` says whether the template knows that role; else it becomes `system`.
pub(crate) fn prepare(
    messages: &[Arc<SharedMessage>],
    format: ContentFormat,
    developer: bool,
) -> Vec<Arc<Value>> {
    let kind = match (format, developer) {
        (ContentFormat::Text, false) => 0,
        (ContentFormat::Text, true) => 1,
        (ContentFormat::Parts, false) => 2,
        (ContentFormat::Parts, true) => 3,
    };
    messages
        .iter()
        .map(|message| message.form(kind, |message| one(message, format, developer)))
        .collect()
}

fn one(message: &Message, format: ContentFormat, developer: bool) -> Value {
    let role = if message.role == "developer" && !developer {
        "system"
    } else {
        &message.role
    };
    let mut fields = Map::new();
    fields.insert("role".to_owned(), json!(role));
    fields.insert("content".to_owned(), content(message, format));
    let given = |name: &str| {
        message
            .rest
            .get(name)
            .filter(|value| !value.is_null())
            .cloned()
    };
    if role == "assistant" {
        if let Some(Value::Array(calls)) = given("tool_calls").filter(|calls| calls != &json!([])) {
            fields.insert(
                "tool_calls".to_owned(),
                Value::Array(calls.into_iter().map(parsed).collect()),
            );
        }
        if let Some(reasoning) = given("reasoning") {
            fields.insert("reasoning".to_owned(), reasoning.clone());
            fields.insert("reasoning_content".to_owned(), reasoning);
        }
    }
    if role == "tool"
        && let Some(id) = given("tool_call_id")
    {
        fields.insert("tool_call_id".to_owned(), id);
    }
    if let Some(name) = given("name") {
        fields.insert("name".to_owned(), name);
    }
    Value::Object(fields)
}

/// Content in the template's form. A tool's result is always one text.
fn content(message: &Message, format: ContentFormat) -> Value {
    let parts: &[String] = match &message.content {
        None => &[],
        Some(Content::Text(text)) => std::slice::from_ref(text),
        Some(Content::Parts(parts)) => parts,
    };
    if format == ContentFormat::Parts && message.role != "tool" {
        return parts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
    }
    Value::String(parts.join("\n"))
}

/// A tool call whose arguments are an object, as templates want them; a text that is no JSON object stays as it is.
fn parsed(mut call: Value) -> Value {
    if let Some(arguments) = call.pointer_mut("/function/arguments") {
        let object = match arguments {
            Value::String(text) if text.trim().is_empty() => Some(json!({})),
            Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object),
            Value::Null => Some(json!({})),
            _ => None,
        };
        if let Some(object) = object {
            *arguments = object;
        }
    } else if let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) {
        function.insert("arguments".to_owned(), json!({}));
    }
    call
}
