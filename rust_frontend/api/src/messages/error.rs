//! The one error in Anthropic's shape.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, ErrorKind};

/// What stands in `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnthropicError {
    /// A class, as in Anthropic's API.
    #[serde(rename = "type")]
    pub kind: String,
    /// For people; it names the field at fault.
    pub message: String,
}

/// `{"type": "error", "error": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnthropicErrorBody {
    /// "error".
    #[serde(rename = "type")]
    pub kind: String,
    /// The error.
    pub error: AnthropicError,
    /// As in the header.
    pub request_id: Option<String>,
}

impl From<&ApiError> for AnthropicError {
    fn from(error: &ApiError) -> Self {
        let kind = match error.kind {
            ErrorKind::InvalidRequest
            | ErrorKind::MethodNotAllowed
            | ErrorKind::Conflict
            | ErrorKind::NotImplemented => "invalid_request_error",
            ErrorKind::Unauthenticated => "authentication_error",
            ErrorKind::Forbidden => "permission_error",
            ErrorKind::NotFound => "not_found_error",
            ErrorKind::TooLarge => "request_too_large",
            ErrorKind::Overloaded => "rate_limit_error",
            ErrorKind::Internal => "api_error",
            ErrorKind::Timeout => "timeout_error",
            ErrorKind::Unavailable => "overloaded_error",
        };
        Self {
            kind: kind.to_owned(),
            message: error.message.clone(),
        }
    }
}

impl ApiError {
    /// The body of an answer on Anthropic's routes.
    #[must_use]
    pub fn anthropic(&self, request_id: Option<String>) -> AnthropicErrorBody {
        AnthropicErrorBody {
            kind: "error".to_owned(),
            error: self.into(),
            request_id,
        }
    }
}
