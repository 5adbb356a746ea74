//! Items of a conversation as the messages of a chat.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::field::{self, shown, wrong};
use crate::shared::SharedMessage;
use crate::turns::Turn;

/// How thoughts that agents carry for us begin; behind it stands their text, hexadecimal.
const CARRIED: &str = "octavo1:";

/// Kinds of content parts that hold something other than text.
const MEDIA: [&str; 4] = [
    "input_image",
    "input_file",
    "input_audio",
    "computer_screenshot",
];

/// Reads `input` to items, each an object with a type.
pub(super) fn take(fields: &mut Map<String, Value>) -> Result<Vec<Value>, ApiError> {
    let input = field::take(fields, "input").ok_or_else(|| ApiError::missing("input"))?;
    match input {
        Value::String(text) => Ok(vec![user(&text)]),
        Value::Array(items) if items.is_empty() => {
            let message = "'input' must hold at least one item; got none.";
            Err(ApiError::invalid("input", message))
        }
        Value::Array(items) => items.into_iter().enumerate().map(typed).collect(),
        other => Err(wrong("input", "a string or a list of items", &other)),
    }
}

fn user(text: &str) -> Value {
    json!({
        "type": "message", "role": "user", "status": "completed",
        "content": [{"type": "input_text", "text": text}],
    })
}

/// An item with its type, which messages may leave out.
fn typed((index, item): (usize, Value)) -> Result<Value, ApiError> {
    let path = format!("input.{index}");
    let Value::Object(mut fields) = item else {
        return Err(wrong(
            &path,
            "an object such as {\"role\": \"user\", \"content\": \"...\"}",
            &item,
        ));
    };
    match fields.get("type") {
        None | Some(Value::Null) if fields.contains_key("role") => {
            fields.insert("type".to_owned(), Value::from("message"));
        }
        None | Some(Value::Null) if fields.contains_key("id") => {
            fields.insert("type".to_owned(), Value::from("item_reference"));
        }
        None | Some(Value::Null) => return Err(ApiError::missing(&format!("{path}.type"))),
        Some(Value::String(_)) => {}
        Some(other) => {
            return Err(wrong(
                &format!("{path}.type"),
                "a string such as \"message\"",
                other,
            ));
        }
    }
    Ok(Value::Object(fields))
}

/// What the id of an item of this type begins with.
#[must_use]
pub fn id_prefix(item: &Value) -> &'static str {
    match item["type"].as_str() {
        Some("function_call") => "fc",
        Some("function_call_output") => "fco",
        Some("reasoning") => "rs",
        _ => "msg",
    }
}

/// The id that an item names in place of what it stands for.
#[must_use]
pub fn referenced(item: &Value) -> Option<&str> {
    item["id"]
        .as_str()
        .filter(|_| item["type"] == "item_reference")
}

/// Turns items into messages; references, which must have been resolved where messages are wanted, give none; `at` is the field that errors name. What an assistant thought, said and called, one after
/// the other, is one message.
pub(super) fn messages<'a>(
    items: impl Iterator<Item = &'a Value>,
    at: &str,
) -> Result<Vec<Arc<SharedMessage>>, ApiError> {
    let mut turns: Vec<Turn> = Vec::new();
    for (index, item) in items.enumerate() {
        let path = format!("{at}.{index}");
        let Some(fields) = item.as_object() else {
            return Err(wrong(&path, "an object", item));
        };
        match item["type"].as_str().unwrap_or_default() {
            "message" => message(&mut turns, fields, &path)?,
            "reasoning" => {
                let thoughts = thoughts(fields, &path)?;
                let turn = assistant(&mut turns, |turn| {
                    !turn.calls.is_empty() || !turn.parts.is_empty()
                });
                turn.thoughts
                    .extend(thoughts.filter(|text| !text.is_empty()));
            }
            "function_call" => {
                let call = call(fields, &path)?;
                assistant(&mut turns, |_| false).calls.push(call);
            }
            "function_call_output" => {
                let parts = match fields.get("output") {
                    Some(output) => texts(output, &format!("{path}.output"))?,
                    None => return Err(ApiError::missing(&format!("{path}.output"))),
                };
                turns.push(Turn {
                    answers: Some(text(fields, "call_id", &path)?),
                    ..Turn::new("tool", parts)
                });
            }
            "item_reference" => {
                text(fields, "id", &path)?;
            }
            other => {
                let kind = shown(&Value::from(other));
                let message = format!(
                    "Items of type {kind} are not supported; known are message, reasoning, function_call, \
                     function_call_output and item_reference."
                );
                return Err(ApiError::unsupported(path, message));
            }
        }
    }
    Ok(turns.into_iter().map(Turn::into_shared).collect())
}

/// The assistant's turn that goes on; a new one where there is none or `full` says so.
fn assistant(turns: &mut Vec<Turn>, full: impl Fn(&Turn) -> bool) -> &mut Turn {
    let last = turns.last();
    if last.is_none_or(|turn| turn.role != "assistant" || full(turn)) {
        turns.push(Turn::new("assistant", Vec::new()));
    }
    let last = turns.len() - 1;
    &mut turns[last]
}

fn message(turns: &mut Vec<Turn>, fields: &Map<String, Value>, path: &str) -> Result<(), ApiError> {
    let role = text(fields, "role", path)?;
    if !["user", "assistant", "system", "developer"].contains(&role.as_str()) {
        let wanted = "\"user\", \"assistant\", \"system\" or \"developer\"";
        return Err(wrong(&format!("{path}.role"), wanted, &Value::String(role)));
    }
    let parts = match fields.get("content") {
        Some(content) => texts(content, &format!("{path}.content"))?,
        None => return Err(ApiError::missing(&format!("{path}.content"))),
    };
    if role == "assistant" {
        let full = |turn: &Turn| !turn.parts.is_empty() || !turn.calls.is_empty();
        assistant(turns, full).parts.extend(parts);
    } else {
        turns.push(Turn::new(&role, parts));
    }
    Ok(())
}

/// A string that must be there.
fn text(fields: &Map<String, Value>, name: &str, path: &str) -> Result<String, ApiError> {
    match fields.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        None | Some(Value::Null) => Err(ApiError::missing(&format!("{path}.{name}"))),
        Some(other) => Err(wrong(&format!("{path}.{name}"), "a string", other)),
    }
}

/// A string or a list of parts of text.
fn texts(value: &Value, path: &str) -> Result<Vec<String>, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(vec![text.clone()]),
        Value::Array(parts) => parts,
        other => return Err(wrong(path, "a string or a list of text parts", other)),
    };
    let read = |(index, part): (usize, &Value)| {
        let path = format!("{path}.{index}");
        let Some(fields) = part.as_object() else {
            return Err(wrong(
                &path,
                "a part such as {\"type\": \"input_text\", \"text\": \"...\"}",
                part,
            ));
        };
        match text(fields, "type", &path)?.as_str() {
            "input_text" | "output_text" | "text" => text(fields, "text", &path),
            "refusal" => text(fields, "refusal", &path),
            media if MEDIA.contains(&media) => {
                let message = format!(
                    "Content parts of type \"{media}\" are not supported: this server reads text only."
                );
                Err(ApiError::unsupported(path, message))
            }
            _ => {
                let wanted = "\"input_text\" or \"output_text\"";
                Err(wrong(&format!("{path}.type"), wanted, &fields["type"]))
            }
        }
    };
    parts.iter().enumerate().map(read).collect()
}

fn call(fields: &Map<String, Value>, path: &str) -> Result<Value, ApiError> {
    let (id, name) = (text(fields, "call_id", path)?, text(fields, "name", path)?);
    let arguments = text(fields, "arguments", path)?;
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Thoughts: their text, what an agent carried for us, or a summary.
fn thoughts(
    fields: &Map<String, Value>,
    path: &str,
) -> Result<impl Iterator<Item = String> + use<>, ApiError> {
    let list = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(parts)) => {
            let read = |(index, part): (usize, &Value)| match part.get("text") {
                Some(Value::String(text)) => Ok(text.clone()),
                _ => Err(ApiError::missing(&format!("{path}.{name}.{index}.text"))),
            };
            parts.iter().enumerate().map(read).collect()
        }
        Some(other) => Err(wrong(&format!("{path}.{name}"), "a list of parts", other)),
    };
    let (content, summary) = (list("content")?, list("summary")?);
    let carried = match fields.get("encrypted_content") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => decoded(text),
        Some(other) => {
            return Err(wrong(
                &format!("{path}.encrypted_content"),
                "a string",
                other,
            ));
        }
    };
    let all = match (content.is_empty(), carried) {
        (false, _) => content,
        (true, Some(carried)) => vec![carried],
        (true, None) => summary,
    };
    Ok(all.into_iter())
}

/// Thoughts as agents carry them.
#[must_use]
pub fn carried(thoughts: &str) -> String {
    let hex: String = thoughts.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{CARRIED}{hex}")
}

fn decoded(text: &str) -> Option<String> {
    let hex = text.strip_prefix(CARRIED).filter(|hex| hex.is_ascii())?;
    let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<_>>>()?).ok()
}
