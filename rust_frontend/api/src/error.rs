//! The one error of all HTTP routes, and the body that clients see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What kind of failure it is; decides status and `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is at fault: 400.
    InvalidRequest,
    /// No key, or one that is not known: 401.
    Unauthenticated,
    /// The key may not do this: 403.
    Forbidden,
    /// What the request names does not exist: 404.
    NotFound,
    /// The route exists, the method does not: 405.
    MethodNotAllowed,
    /// Not in the state that the server is in: 409.
    Conflict,
    /// The body is larger than the server reads: 413.
    TooLarge,
    /// Too many requests are open: 429.
    Overloaded,
    /// octavo failed: 500.
    Internal,
    /// octavo cannot do this: 501.
    NotImplemented,
    /// No engine can take requests now: 503.
    Unavailable,
    /// The answer took too long: 504.
    Timeout,
}

impl ErrorKind {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::Overloaded => 429,
            Self::Internal => 500,
            Self::NotImplemented => 501,
            Self::Unavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// The `type` of the body.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidRequest
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::Conflict
            | Self::TooLarge
            | Self::NotImplemented => "invalid_request_error",
            Self::Unauthenticated => "authentication_error",
            Self::Forbidden => "permission_error",
            Self::Overloaded => "rate_limit_error",
            Self::Internal | Self::Unavailable | Self::Timeout => "server_error",
        }
    }
}

/// A failed request. The message says what was wrong, with the value, and what to do; clients read it as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Decides status and `type`.
    pub kind: ErrorKind,
    /// For the client.
    pub message: String,
    /// The request field at fault, dotted where it is nested (`messages.0.content`).
    pub param: Option<String>,
    /// A slug that programs may compare.
    pub code: &'static str,
    /// Goes into the Retry-After header.
    pub retry_after_s: Option<u32>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    fn new(kind: ErrorKind, code: &'static str, message: String) -> Self {
        Self {
            kind,
            message,
            param: None,
            code,
            retry_after_s: None,
        }
    }

    /// 504: the answer was not complete within so many seconds.
    pub fn timed_out(seconds: f64) -> Self {
        let message = format!("The request was not answered within {seconds} s, its limit.");
        Self::new(ErrorKind::Timeout, "request_timeout", message)
    }

    /// 401: no key, or one that is not known.
    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(
            ErrorKind::Unauthenticated,
            "invalid_api_key",
            message.into(),
        )
    }

    /// 403: the key may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(
            ErrorKind::Forbidden,
            "insufficient_permissions",
            message.into(),
        )
    }

    /// 400 for a field with a wrong value.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "invalid_value", message.into()).on(param)
    }

    /// 400 for a field that must be there.
    pub fn missing(param: &str) -> Self {
        let message = format!("Field '{param}' is missing. It is required.");
        Self::new(ErrorKind::InvalidRequest, "missing_field", message).on(param)
    }

    /// 400 for a field that octavo knows and cannot serve.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(
            ErrorKind::InvalidRequest,
            "unsupported_parameter",
            message.into(),
        )
        .on(param)
    }

    /// 400 for a body that is not a JSON object.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, "invalid_json", message.into())
    }

    /// 400 for a prompt that does not fit; `length` and `limit` count tokens.
    pub fn too_long(param: &str, length: usize, limit: usize) -> Self {
        Self::longer(param, &length.to_string(), limit)
    }

    /// A text that is so long that nobody counted its tokens: there are `least` of them or more.
    pub fn far_too_long(param: &str, least: usize, limit: usize) -> Self {
        Self::longer(param, &format!("at least {least}"), limit)
    }

    /// 400 for a text that a model of vectors cannot take whole; `length` is a number of tokens, or "at least" one.
    pub fn text_too_long(param: impl Into<String>, length: &str, limit: usize) -> Self {
        let param = param.into();
        let message = format!(
            "'{param}' has {length} tokens; this model takes {limit} at most. Shorten it, or let it be cut with \
             'truncate_prompt_tokens': -1."
        );
        Self::new(
            ErrorKind::InvalidRequest,
            "context_length_exceeded",
            message,
        )
        .on(param)
    }

    fn longer(param: &str, length: &str, limit: usize) -> Self {
        let message = format!(
            "The prompt has {length} tokens; this model's maximum context length is {limit} tokens, of which at least one \
             must be left for the output. Shorten the prompt to {} tokens or fewer.",
            limit.saturating_sub(1)
        );
        Self::new(
            ErrorKind::InvalidRequest,
            "context_length_exceeded",
            message,
        )
        .on(param)
    }

    /// The engine's own refusal, with the code, message and field of the wire's `RequestRejected`.
    pub fn rejected(code: &str, message: impl Into<String>, param: Option<String>) -> Self {
        let (kind, slug) = match code {
            "too_long" => (ErrorKind::InvalidRequest, "context_length_exceeded"),
            "overloaded" => (ErrorKind::Overloaded, "overloaded"),
            _ => (ErrorKind::InvalidRequest, "invalid_value"),
        };
        Self {
            param,
            ..Self::new(kind, slug, message.into())
        }
    }

    /// 404 for a model that is not served; `served` are the names that are.
    pub fn model_not_found(model: &str, served: &[String]) -> Self {
        let message = format!(
            "The model `{model}` does not exist. Served here: {}.",
            served.join(", ")
        );
        Self::new(ErrorKind::NotFound, "model_not_found", message).on("model")
    }

    /// 404 for a path that is no route.
    pub fn no_route(path: &str) -> Self {
        Self::new(
            ErrorKind::NotFound,
            "not_found",
            format!("There is no route {path}."),
        )
    }

    /// 405.
    pub fn method_not_allowed(method: &str, path: &str) -> Self {
        let message = format!("{path} does not answer {method}.");
        Self::new(ErrorKind::MethodNotAllowed, "method_not_allowed", message)
    }

    /// 409.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, "conflict", message.into())
    }

    /// 501.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotImplemented, "not_implemented", message.into())
    }

    /// 413; `limit` in bytes.
    pub fn too_large(limit: usize) -> Self {
        let message =
            format!("The body is larger than {limit} bytes, the most that is read on this route.");
        Self::new(ErrorKind::TooLarge, "body_too_large", message)
    }

    /// 429.
    pub fn overloaded(message: impl Into<String>, retry_after_s: u32) -> Self {
        Self {
            retry_after_s: Some(retry_after_s),
            ..Self::new(ErrorKind::Overloaded, "overloaded", message.into())
        }
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>, retry_after_s: u32) -> Self {
        Self {
            retry_after_s: Some(retry_after_s),
            ..Self::new(ErrorKind::Unavailable, "unavailable", message.into())
        }
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "internal_error", message.into())
    }

    /// Names the field at fault.
    #[must_use]
    pub fn on(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Says that the field at fault stands in the field `outer`.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let param = match &self.param {
            Some(param) => format!("{outer}.{param}"),
            None => outer.to_owned(),
        };
        self.on(param)
    }

    /// As [`Self::within`], and says so in the message too.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        if let Some(param) = &self.param {
            let (inner, whole) = (format!("'{param}'"), format!("'{outer}.{param}'"));
            self.message = self.message.replace(&inner, &whole);
        }
        self.within(outer)
    }

    /// Says in which of several conversations the field `messages` is at fault.
    #[must_use]
    pub(crate) fn of_conversation(mut self, index: usize) -> Self {
        if let Some(rest) = self
            .param
            .as_deref()
            .and_then(|it| it.strip_prefix("messages"))
        {
            let whole = format!("messages.{index}{rest}");
            self.message = self
                .message
                .replace("'messages", &format!("'messages.{index}"));
            self.param = Some(whole);
        }
        self
    }

    /// Says which of several values of the field `name` is at fault.
    #[must_use]
    pub fn entry(self, name: &str, index: usize) -> Self {
        match self.param.as_deref() {
            Some(param) if param == name => {
                let param = format!("{name}.{index}");
                self.on(param)
            }
            _ => self,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.kind.status()
    }

    /// The body of the answer, and of the error event of a stream.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorObject {
                message: self.message.clone(),
                kind: self.kind.name().to_owned(),
                param: self.param.clone(),
                code: Some(self.code.to_owned()),
            },
        }
    }
}

/// `{"error": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// What stands in `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorObject {
    /// For people.
    pub message: String,
    /// A coarse class, as in OpenAI's API.
    #[serde(rename = "type")]
    pub kind: String,
    /// The request field at fault.
    pub param: Option<String>,
    /// A finer class.
    pub code: Option<String>,
}
