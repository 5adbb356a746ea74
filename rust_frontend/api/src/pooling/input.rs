//! What vectors are asked for, and how much of it counts.

use serde_json::{Map, Value};

use crate::body::Body;
use crate::chat::ChatRequest;
use crate::error::ApiError;
use crate::field;
use crate::sampling::token_id;
use crate::scheduling::SchedulingFields;
use crate::truncation::Truncation;

/// Texts in one request, at most.
pub const MAX_TEXTS: usize = 2048;

/// Fields of a request that shape the prompt of a conversation.
const OF_CHAT: [&str; 7] = [
    "messages",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "tools",
];

/// One text, in one of the forms in which it may come.
#[derive(Debug, Clone, PartialEq)]
pub enum PooledInput {
    /// A text; may be empty.
    Text(String),
    /// Token ids, at least one.
    Tokens(Vec<i32>),
    /// A conversation, rendered as a chat's.
    Chat(Box<ChatRequest>),
}

/// What the routes that give vectors have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolingOptions {
    /// `None`: a text that is too long is refused.
    pub truncation: Option<Truncation>,
    /// Vectors of length 1, or probabilities; `None`: as the model does by default.
    pub activate: Option<bool>,
    /// Whether the tokenizer adds its own special tokens to texts. Default true.
    pub add_special_tokens: bool,
    /// When to serve it, and beside whom.
    pub scheduling: SchedulingFields,
    /// Whoever the client says is behind it; for logs.
    pub user: Option<String>,
}

impl Default for PoolingOptions {
    fn default() -> Self {
        Self {
            truncation: None,
            activate: None,
            add_special_tokens: true,
            scheduling: SchedulingFields::default(),
            user: None,
        }
    }
}

impl PoolingOptions {
    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        refuse(fields)?;
        Ok(Self {
            truncation: Truncation::take(fields, false)?,
            activate: activation(fields)?,
            add_special_tokens: field::boolean(fields, "add_special_tokens")?.unwrap_or(true),
            scheduling: SchedulingFields::take(fields)?,
            user: field::string(fields, "user")?,
        })
    }
}

/// Refuses what vLLM defines and octavo does not do.
fn refuse(fields: &mut Map<String, Value>) -> Result<(), ApiError> {
    for name in ["mm_processor_kwargs", "media_io_kwargs", "data"] {
        let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        if let Some(value) = field::take(fields, name).filter(|value| !empty(value)) {
            let message = format!(
                "'{name}' is not supported; got {}. Leave it out.",
                field::shown(&value)
            );
            return Err(ApiError::unsupported(name, message));
        }
    }
    Ok(())
}

/// `use_activation`, or one of the names that it had before.
fn activation(fields: &mut Map<String, Value>) -> Result<Option<bool>, ApiError> {
    let mut found = None;
    for name in ["use_activation", "normalize", "softmax", "activation"] {
        let given = field::boolean(fields, name)?;
        found = found.or(given);
    }
    Ok(found)
}

/// Takes `input`, or `messages`, out of a body: at least one text, in the order of the request.
pub(crate) fn inputs(fields: &mut Map<String, Value>) -> Result<Vec<PooledInput>, ApiError> {
    let chats = fields.get("messages").is_some_and(|value| !value.is_null());
    if !chats {
        let value = field::take(fields, "input").ok_or_else(|| ApiError::missing("input"))?;
        return texts("input", value);
    }
    if fields.get("input").is_some_and(|value| !value.is_null()) {
        let message = "'input' and 'messages' cannot both be given: send one of them.";
        return Err(ApiError::invalid("input", message));
    }
    conversations(fields)
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
pub(crate) fn texts(name: &str, value: Value) -> Result<Vec<PooledInput>, ApiError> {
    let wanted = "a string, a list of strings, a list of token ids, or a list of such lists";
    let items = match value {
        Value::String(text) => return Ok(vec![PooledInput::Text(text)]),
        Value::Array(items) => items,
        other => return Err(field::wrong(name, wanted, &other)),
    };
    match items.first() {
        None => {
            let message = format!("'{name}' must hold at least one text; got an empty list.");
            Err(ApiError::invalid(name, message))
        }
        Some(Value::Number(_)) => Ok(vec![tokens(name, &items)?]),
        Some(_) => several(name, items),
    }
}

fn several(name: &str, items: Vec<Value>) -> Result<Vec<PooledInput>, ApiError> {
    few(name, items.len())?;
    let one = |(index, item): (usize, Value)| match item {
        Value::String(text) => Ok(PooledInput::Text(text)),
        Value::Array(ids) => tokens(name, &ids).map_err(|error| error.entry(name, index)),
        other => {
            let place = format!("{name}.{index}");
            Err(field::wrong(
                &place,
                "a string or a list of token ids",
                &other,
            ))
        }
    };
    items.into_iter().enumerate().map(one).collect()
}

/// Refuses more texts than a request may hold.
pub(crate) fn few(name: &str, count: usize) -> Result<(), ApiError> {
    if count <= MAX_TEXTS {
        return Ok(());
    }
    let message =
        format!("'{name}' may hold {MAX_TEXTS} texts; got {count}. Send several requests.");
    Err(ApiError::invalid(name, message))
}

fn tokens(name: &str, items: &[Value]) -> Result<PooledInput, ApiError> {
    if items.is_empty() {
        let message = format!("'{name}' holds a text of no tokens; at least one is needed.");
        return Err(ApiError::invalid(name, message));
    }
    let ids: Result<Vec<i32>, ApiError> = items.iter().map(|item| token_id(item, name)).collect();
    Ok(PooledInput::Tokens(ids?))
}

/// One conversation, or a list of conversations that share the other fields.
fn conversations(fields: &mut Map<String, Value>) -> Result<Vec<PooledInput>, ApiError> {
    let mut shared = Map::new();
    for name in OF_CHAT {
        if let Some(value) = field::take(fields, name) {
            shared.insert(name.to_owned(), value);
        }
    }
    let begins = shared.contains_key("continue_final_message");
    if !begins {
        shared
            .entry("add_generation_prompt")
            .or_insert(Value::Bool(false));
    }
    let batch = match shared.get_mut("messages") {
        Some(Value::Array(items)) if matches!(items.first(), Some(Value::Array(_))) => {
            std::mem::take(items)
        }
        _ => {
            let chat = ChatRequest::from_body(Body::from(shared))?;
            return Ok(vec![PooledInput::Chat(Box::new(chat))]);
        }
    };
    few("messages", batch.len())?;
    let mut chats = Vec::with_capacity(batch.len());
    for (index, messages) in batch.into_iter().enumerate() {
        let mut one = shared.clone();
        one.insert("messages".to_owned(), messages);
        let chat = ChatRequest::from_body(Body::from(one));
        let chat = chat.map_err(|error| error.entry("messages", index))?;
        chats.push(PooledInput::Chat(Box::new(chat)));
    }
    Ok(chats)
}
