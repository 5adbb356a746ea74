//! The body of a request before its fields are judged.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;
use crate::seen::SeenMessages;
use crate::shared::SharedMessage;

/// How much of the text before a syntax error the message quotes, in bytes.
const EXCERPT: usize = 48;

/// A JSON object whose fields are taken out one by one. Of a key that comes twice the last value holds, as in Python.
#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    pub(crate) fields: Map<String, Value>,
    /// The messages of a chat, where they are not among the fields.
    pub(crate) messages: Option<Vec<Arc<SharedMessage>>>,
}

impl From<Map<String, Value>> for Body {
    fn from(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            messages: None,
        }
    }
}

impl Body {
    /// Reads the bytes of a chat. What it begins with as an earlier one is not read again.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_chat(bytes: &[u8], seen: &SeenMessages) -> Result<Self, ApiError> {
        match seen.read(bytes) {
            Some((fields, messages)) => Ok(Self {
                fields,
                messages: Some(messages),
            }),
            None => Self::parse(bytes),
        }
    }

    /// Reads the bytes of a request.
    ///
    /// # Errors
    /// 400 for anything but a JSON object, with line and column and the text before the place.
    pub fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(ApiError::malformed(
                "The body is empty. Send a JSON object.",
            ));
        }
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(fields.into()),
            Ok(other) => {
                let kind = field::kind(&other);
                Err(ApiError::malformed(format!(
                    "The body is JSON, but {kind}. Send a JSON object."
                )))
            }
            Err(error) => Err(ApiError::malformed(syntax(bytes, &error))),
        }
    }

    /// Whether a field is there and not null.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// Takes a string out of the body.
    ///
    /// # Errors
    /// 400 when the field is no string.
    pub fn take_string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        field::string(&mut self.fields, name)
    }

    /// Takes a field out of the body as it is; null counts as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        field::take(&mut self.fields, name)
    }

    /// A field that nobody has taken.
    #[must_use]
    pub fn left(&self) -> Option<&str> {
        let mut named = self.fields.iter().filter(|(_, value)| !value.is_null());
        named.next().map(|(name, _)| name.as_str())
    }

    /// All fields that nobody has taken.
    #[must_use]
    pub(crate) fn names_left(self) -> Vec<String> {
        let left = self
            .fields
            .into_iter()
            .filter(|(_, value)| !value.is_null());
        left.map(|(name, _)| name).collect()
    }

    /// The model that the request names; `None` where it names none.
    ///
    /// # Errors
    /// 400 when the field is no string.
    pub fn model(&self) -> Result<Option<&str>, ApiError> {
        match self.fields.get("model") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => Ok(Some(name)),
            Some(other) => Err(field::wrong("model", "a string", other)),
        }
    }
}

/// Describes a syntax error with its place and what stands before it: a number too large has no better name.
fn syntax(bytes: &[u8], error: &serde_json::Error) -> String {
    let line_start = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len);
    let end = (line_start.sum::<usize>() + error.column()).min(bytes.len());
    let near = String::from_utf8_lossy(&bytes[end.saturating_sub(EXCERPT)..end]);
    format!(
        "The body is not valid JSON: {error}, near `{}`.",
        near.trim_start_matches('\u{fffd}')
    )
}
