//! `truncate_prompt_tokens` and `truncation_side`: how a prompt that is too long is cut.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;

const TOKENS: &str = "truncate_prompt_tokens";
const SIDE: &str = "truncation_side";

/// How a text that is too long is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Tokens that are kept, the tokenizer's own among them; `None`: as many as the model takes.
    pub tokens: Option<usize>,
    /// Whether the beginning is cut off, not the end.
    pub left: bool,
}

impl Truncation {
    /// Takes the fields out of a body; `None`: a text that is too long is refused. `left` says which end is cut off where
    /// the body does not.
    pub(crate) fn take(
        fields: &mut Map<String, Value>,
        left: bool,
    ) -> Result<Option<Self>, ApiError> {
        let wanted = "a number of tokens of at least 1, or -1 for as many as the model takes";
        let side = field::string(fields, SIDE)?;
        let left = match side.as_deref() {
            None => left,
            Some("right") => false,
            Some("left") => true,
            Some(other) => {
                let message = format!("'{SIDE}' must be \"left\" or \"right\"; got {other:?}.");
                return Err(ApiError::invalid(SIDE, message));
            }
        };
        let tokens = match field::integer(fields, TOKENS, -1, wanted)? {
            None => return Ok(None),
            Some(0) => return Err(field::wrong(TOKENS, wanted, &Value::from(0))),
            Some(-1) => None,
            Some(tokens) => Some(usize::try_from(tokens).unwrap_or(usize::MAX)),
        };
        Ok(Some(Self { tokens, left }))
    }
}
