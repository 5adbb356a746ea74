//! The fields of a request that are about the model's thoughts.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field;

/// Under which names an answer carries thoughts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning`, as vLLM and OpenAI's open models name it.
    #[default]
    Reasoning,
    /// `reasoning_content`, as DeepSeek's API and older clients name it.
    ReasoningContent,
    /// Both.
    Both,
}

/// What a request says about thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningFields {
    /// Whether the answer carries them. Default true. They are counted all the same.
    pub include: bool,
    /// Under which names.
    pub field: ReasoningField,
}

impl Default for ReasoningFields {
    fn default() -> Self {
        Self {
            include: true,
            field: ReasoningField::default(),
        }
    }
}

impl ReasoningFields {
    /// Takes the fields out of a body.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let field = match field::string(fields, "reasoning_field")?.as_deref() {
            None | Some("reasoning") => ReasoningField::Reasoning,
            Some("reasoning_content") => ReasoningField::ReasoningContent,
            Some("both") => ReasoningField::Both,
            Some(other) => {
                return Err(field::wrong(
                    "reasoning_field",
                    "\"reasoning\", \"reasoning_content\" or \"both\"",
                    &Value::String(other.to_owned()),
                ));
            }
        };
        Ok(Self {
            include: field::boolean(fields, "include_reasoning")?.unwrap_or(true),
            field,
        })
    }
}
