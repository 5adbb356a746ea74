//! Turns of a conversation, while parts are added to them; the APIs of blocks and items become a chat through them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::message::{Content, Message};
use crate::shared::SharedMessage;

/// One turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    pub(crate) role: String,
    pub(crate) parts: Vec<String>,
    pub(crate) thoughts: Vec<String>,
    /// In a chat's form.
    pub(crate) calls: Vec<Value>,
    /// The call that a tool's turn answers.
    pub(crate) answers: Option<String>,
}

impl Turn {
    pub(crate) fn new(role: &str, parts: Vec<String>) -> Self {
        Self {
            role: role.to_owned(),
            parts,
            ..Self::default()
        }
    }

    /// The message of a chat, as requests hold it.
    pub(crate) fn into_shared(self) -> Arc<SharedMessage> {
        Arc::new(self.into_message().into())
    }

    /// The message of a chat.
    pub(crate) fn into_message(mut self) -> Message {
        let content = match self.parts.len() {
            0 if self.role == "assistant" => None,
            0 => Some(Content::Text(String::new())),
            1 => self.parts.pop().map(Content::Text),
            _ => Some(Content::Parts(self.parts)),
        };
        let mut rest = Map::new();
        let mut put = |name: &str, value: Value| rest.insert(name.to_owned(), value);
        if !self.thoughts.is_empty() {
            put("reasoning", Value::String(self.thoughts.join("\n")));
        }
        if !self.calls.is_empty() {
            put("tool_calls", Value::Array(self.calls));
        }
        if let Some(id) = self.answers {
            put("tool_call_id", Value::String(id));
        }
        Message {
            role: self.role,
            content,
            rest,
        }
    }
}
