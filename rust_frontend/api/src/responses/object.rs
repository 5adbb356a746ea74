//! The object of `/v1/responses`, and its items.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::response::Usage;

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// In the background, not begun.
    Queued,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Cut by a limit.
    Incomplete,
    /// Broken.
    Failed,
    /// Cancelled by the client.
    Cancelled,
}

impl ResponseStatus {
    /// Whether nothing more will come.
    #[must_use]
    pub fn ended(self) -> bool {
        !matches!(self, Self::Queued | Self::InProgress)
    }
}

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    /// It grows.
    InProgress,
    /// It is whole.
    Completed,
    /// A limit or a fault cut it.
    Incomplete,
}

/// A part of a message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputPart {
    /// Text.
    OutputText {
        /// The text.
        text: String,
        /// Always empty.
        annotations: Vec<Value>,
        /// Of its tokens, as of a chat, where they are asked for.
        logprobs: Vec<Value>,
    },
}

impl OutputPart {
    /// A part of text.
    #[must_use]
    pub fn text(text: String) -> Self {
        Self::OutputText {
            text,
            annotations: Vec::new(),
            logprobs: Vec::new(),
        }
    }
}

/// A part of thoughts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReasoningPart {
    /// As the model thought them.
    ReasoningText {
        /// The text.
        text: String,
    },
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputItem {
    /// Thoughts.
    Reasoning {
        /// "rs_...".
        id: String,
        /// Always empty: thoughts come as they are.
        summary: Vec<Value>,
        /// The thoughts.
        content: Vec<ReasoningPart>,
        /// The thoughts again, encoded, where `include` asks for them: agents that drop the text keep this.
        encrypted_content: Option<String>,
        /// How far it is.
        status: ItemStatus,
    },
    /// Text.
    Message {
        /// "msg_...".
        id: String,
        /// How far it is.
        status: ItemStatus,
        /// "assistant".
        role: Cow<'static, str>,
        /// One part.
        content: Vec<OutputPart>,
    },
    /// A call of a function.
    FunctionCall {
        /// "fc_...".
        id: String,
        /// How far it is.
        status: ItemStatus,
        /// By which the output of the function refers to it.
        call_id: String,
        /// Of the function.
        name: String,
        /// JSON, unless a limit cut it.
        arguments: String,
    },
}

impl OutputItem {
    /// Sets how far it is.
    pub fn set_status(&mut self, now: ItemStatus) {
        match self {
            Self::Reasoning { status, .. }
            | Self::Message { status, .. }
            | Self::FunctionCall { status, .. } => *status = now,
        }
    }

    /// How far it is.
    #[must_use]
    pub fn status(&self) -> ItemStatus {
        match self {
            Self::Reasoning { status, .. }
            | Self::Message { status, .. }
            | Self::FunctionCall { status, .. } => *status,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. }
            | Self::Message { id, .. }
            | Self::FunctionCall { id, .. } => id,
        }
    }
}

/// Why a response failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseFailure {
    /// A slug that programs may compare.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncompleteDetails {
    /// "`max_output_tokens`": that many, or the context is used up.
    pub reason: Cow<'static, str>,
}

/// What was said about thoughts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasoningEcho {
    /// How hard to think.
    pub effort: Option<String>,
    /// As the request said it.
    pub summary: Option<String>,
}

/// Tokens counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseUsage {
    /// Of the prompt.
    pub input_tokens: usize,
    /// Of these.
    pub input_tokens_details: InputTokensDetails,
    /// Of the output.
    pub output_tokens: usize,
    /// Of these.
    pub output_tokens_details: OutputTokensDetails,
    /// Both.
    pub total_tokens: usize,
}

/// Of the prompt's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputTokensDetails {
    /// Found in the prefix cache.
    pub cached_tokens: usize,
    /// Computed, and kept in the prefix cache.
    pub cache_write_tokens: usize,
}

/// Of the output's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputTokensDetails {
    /// That ended in the text of thoughts.
    pub reasoning_tokens: usize,
}

impl From<&Usage> for ResponseUsage {
    fn from(usage: &Usage) -> Self {
        let details = usage.prompt_tokens_details.as_ref();
        let created = details.and_then(|details| details.created_cache_tokens);
        let thought = usage.completion_tokens_details.as_ref();
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: details.map_or(0, |details| details.cached_tokens),
                cache_write_tokens: created.unwrap_or(0),
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: thought.map_or(0, |details| details.reasoning_tokens),
            },
            total_tokens: usage.total_tokens,
        }
    }
}

/// The answer of `/v1/responses/input_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InputTokenCount {
    /// "`response.input_tokens`".
    pub object: &'static str,
    /// Of the prompt that the request would have.
    pub input_tokens: usize,
}

impl InputTokenCount {
    /// So many tokens.
    #[must_use]
    pub fn new(input_tokens: usize) -> Self {
        Self {
            object: "response.input_tokens",
            input_tokens,
        }
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseObject {
    /// "resp_...".
    pub id: String,
    /// "response".
    pub object: Cow<'static, str>,
    /// Unix seconds.
    pub created_at: u64,
    /// Unix seconds; null until it is completed.
    pub completed_at: Option<u64>,
    /// How far it is.
    pub status: ResponseStatus,
    /// Whether it runs without its client.
    pub background: bool,
    /// Where it failed.
    pub error: Option<ResponseFailure>,
    /// Where a limit cut it.
    pub incomplete_details: Option<IncompleteDetails>,
    /// As the request said it.
    pub instructions: Option<String>,
    /// As the request said it.
    pub max_output_tokens: Option<usize>,
    /// As the request said it; there are no tools that it counts.
    pub max_tool_calls: Option<u64>,
    /// As the request said it.
    pub metadata: Map<String, Value>,
    /// As the request named it, or the first served name.
    pub model: String,
    /// What the model said, in its order.
    pub output: Vec<OutputItem>,
    /// Whether there may be more than one call.
    pub parallel_tool_calls: bool,
    /// What it goes on from.
    pub previous_response_id: Option<String>,
    /// As the request said it; caching is automatic.
    pub prompt_cache_key: Option<String>,
    /// What was said about thoughts.
    pub reasoning: ReasoningEcho,
    /// As the request said it.
    pub safety_identifier: Option<String>,
    /// "default".
    pub service_tier: Cow<'static, str>,
    /// Whether it can be retrieved.
    pub store: bool,
    /// As the request said it.
    pub temperature: Option<f64>,
    /// The form of the text.
    pub text: Value,
    /// Which calls are wanted.
    pub tool_choice: Value,
    /// Functions.
    pub tools: Vec<Value>,
    /// As the request said it.
    pub top_logprobs: u32,
    /// As the request said it.
    pub top_p: Option<f64>,
    /// "auto" or "disabled".
    pub truncation: Cow<'static, str>,
    /// Null until it has ended.
    pub usage: Option<ResponseUsage>,
    /// As the request said it.
    pub user: Option<String>,
}

impl ResponseObject {
    /// The value of `object`.
    pub const OBJECT: &'static str = "response";
}

/// A page of `/v1/responses/{id}/input_items`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputItems {
    /// "list".
    pub object: Cow<'static, str>,
    /// Items.
    pub data: Vec<Value>,
    /// Of the first.
    pub first_id: Option<String>,
    /// Of the last.
    pub last_id: Option<String>,
    /// Whether there are more behind.
    pub has_more: bool,
}

/// The answer to `DELETE /v1/responses/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseDeleted {
    /// Which.
    pub id: String,
    /// "response".
    pub object: Cow<'static, str>,
    /// true.
    pub deleted: bool,
}
