//! Anthropic's answers and the events of its streams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::AnthropicError;
use crate::response::{FinishReason, StopReason, Usage};

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model ended by itself.
    EndTurn,
    /// `max_tokens` or the context is used up.
    MaxTokens,
    /// One of `stop_sequences`.
    StopSequence,
    /// The model called tools.
    ToolUse,
}

impl EndReason {
    /// What Anthropic calls an end, and the stop sequence that brought it.
    #[must_use]
    pub fn of(reason: FinishReason, stop: Option<StopReason>) -> (Self, Option<String>) {
        match (reason, stop) {
            (FinishReason::ToolCalls, _) => (Self::ToolUse, None),
            (FinishReason::Length, _) => (Self::MaxTokens, None),
            (_, Some(StopReason::Text(text))) => (Self::StopSequence, Some(text)),
            _ => (Self::EndTurn, None),
        }
    }
}

/// Tokens counted. The prompt's are the first three together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessagesUsage {
    /// Of the prompt, computed for this request alone.
    pub input_tokens: usize,
    /// Of the prompt, computed and kept in the cache.
    pub cache_creation_input_tokens: usize,
    /// Of the prompt, found in the cache.
    pub cache_read_input_tokens: usize,
    /// Of the answer.
    pub output_tokens: usize,
}

impl MessagesUsage {
    /// Before the first token.
    #[must_use]
    pub fn begun(usage: &Usage) -> Self {
        Self {
            output_tokens: 0,
            ..Self::from(usage)
        }
    }
}

impl From<&Usage> for MessagesUsage {
    fn from(usage: &Usage) -> Self {
        let details = usage.prompt_tokens_details.as_ref();
        let cached = details.map_or(0, |details| details.cached_tokens);
        let created = details.and_then(|details| details.created_cache_tokens);
        let created = created.unwrap_or(0);
        Self {
            input_tokens: usage.prompt_tokens.saturating_sub(cached + created),
            cache_creation_input_tokens: created,
            cache_read_input_tokens: cached,
            output_tokens: usage.completion_tokens,
        }
    }
}

/// One part of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// Not empty in an answer.
        text: String,
    },
    /// Thoughts.
    Thinking {
        /// Their text.
        thinking: String,
        /// A checksum of the text, since clients keep only thoughts that are signed.
        signature: String,
    },
    /// A call of a tool.
    ToolUse {
        /// By which the result refers to it.
        id: String,
        /// Of the tool.
        name: String,
        /// An object.
        input: Value,
    },
}

/// What a block gained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BlockDelta {
    /// More text.
    TextDelta {
        /// Not empty.
        text: String,
    },
    /// More of a call's input.
    InputJsonDelta {
        /// All of them joined are JSON, unless a limit cut them.
        partial_json: String,
    },
    /// More thoughts.
    ThinkingDelta {
        /// Not empty.
        thinking: String,
    },
    /// Comes once, behind the thoughts of a block.
    SignatureDelta {
        /// As in [`ContentBlock::Thinking`].
        signature: String,
    },
}

/// A whole answer, or its beginning in a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageAnswer {
    /// "msg_...".
    pub id: String,
    /// "message".
    #[serde(rename = "type")]
    pub kind: String,
    /// "assistant".
    pub role: String,
    /// As the request named it, or the first served name.
    pub model: String,
    /// In the order in which the model said them.
    pub content: Vec<ContentBlock>,
    /// Null at the beginning of a stream.
    pub stop_reason: Option<EndReason>,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
    /// Tokens counted.
    pub usage: MessagesUsage,
}

impl MessageAnswer {
    /// An answer of which nothing is said yet.
    #[must_use]
    pub fn begin(id: String, model: String, usage: MessagesUsage) -> Self {
        Self {
            id,
            kind: "message".to_owned(),
            role: "assistant".to_owned(),
            model,
            content: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage,
        }
    }
}

/// How a streamed answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessageDelta {
    /// Why.
    pub stop_reason: EndReason,
    /// The stop sequence that ended it.
    pub stop_sequence: Option<String>,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageEvent {
    /// The first.
    MessageStart {
        /// Without content.
        message: MessageAnswer,
    },
    /// A block begins.
    ContentBlockStart {
        /// From 0, without gaps.
        index: usize,
        /// Empty.
        content_block: ContentBlock,
    },
    /// A block grows.
    ContentBlockDelta {
        /// Of the block that began last.
        index: usize,
        /// What it gained.
        delta: BlockDelta,
    },
    /// A block is complete.
    ContentBlockStop {
        /// Of the block that began last.
        index: usize,
    },
    /// The answer ends.
    MessageDelta {
        /// Why.
        delta: MessageDelta,
        /// Of the whole answer.
        usage: MessagesUsage,
    },
    /// The last.
    MessageStop,
    /// The server is alive.
    Ping,
    /// The request failed; the last.
    Error {
        /// Why.
        error: AnthropicError,
        /// As in the header.
        request_id: Option<String>,
    },
}

impl MessageEvent {
    /// The name of the event, which is its `type`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
            Self::Ping => "ping",
            Self::Error { .. } => "error",
        }
    }
}

/// The answer of `/v1/messages/count_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCount {
    /// Of the prompt that the request would have.
    pub input_tokens: usize,
}
