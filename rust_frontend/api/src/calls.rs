//! Tool calls in answers and chunks.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One call of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// By which the tool's result refers to it.
    pub id: String,
    /// "function".
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// What is called.
    pub function: FunctionCall,
}

/// What a call calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments as the model gave them: JSON unless the model or a limit broke off.
    pub arguments: String,
}

impl ToolCall {
    /// The value of `type`.
    pub const KIND: &'static str = "function";

    /// A call of a function.
    pub fn function(id: String, name: String, arguments: String) -> Self {
        Self {
            id,
            kind: Cow::Borrowed(Self::KIND),
            function: FunctionCall { name, arguments },
        }
    }
}

/// What a chunk adds to one call: id, type and name in its first, arguments in the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCallDelta {
    /// Place of the call in the answer, from 0.
    pub index: usize,
    /// In the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// In the first.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'static, str>>,
    /// What it adds.
    pub function: FunctionDelta,
}

/// What a chunk adds to a function call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionDelta {
    /// In the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// To be joined; empty in the first.
    pub arguments: String,
}

impl ToolCallDelta {
    /// The first of a call.
    pub fn open(index: usize, id: String, name: String) -> Self {
        Self {
            index,
            id: Some(id),
            kind: Some(Cow::Borrowed(ToolCall::KIND)),
            function: FunctionDelta {
                name: Some(name),
                arguments: String::new(),
            },
        }
    }

    /// More arguments.
    pub fn arguments(index: usize, arguments: String) -> Self {
        Self {
            index,
            id: None,
            kind: None,
            function: FunctionDelta {
                name: None,
                arguments,
            },
        }
    }
}
