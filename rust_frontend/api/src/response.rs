//! Answers and chunks of the generating routes.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::calls::{ToolCall, ToolCallDelta};
use crate::logprobs::{ChatLogprobs, CompletionLogprobs, PromptLogprobs};

/// Why an output ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token, a stop id or a stop string.
    Stop,
    /// `max_tokens` or the context is used up.
    Length,
    /// The model called tools and then ended by itself.
    ToolCalls,
    /// The output turned in circles, as `repetition_detection` says.
    Repetition,
    /// The request was aborted.
    Abort,
    /// The engine failed on it.
    Error,
}

/// What stopped an output, where it was no end token of the model: an extension that vLLM has too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// A stop id.
    Token(i32),
    /// A stop string.
    Text(String),
}

/// Tokens counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: usize,
    /// Of the output, the end token included.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// Where it is known how many came from the prefix cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// Where thoughts are told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

/// Of the prompt's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptTokensDetails {
    /// Found in the prefix cache.
    pub cached_tokens: usize,
    /// Computed, and found there besides by the same prompt if it comes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_cache_tokens: Option<usize>,
}

/// Of the output's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionTokensDetails {
    /// That ended in the text of thoughts; markers are none.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// Adds up.
    pub fn new(
        prompt_tokens: usize,
        completion_tokens: usize,
        cached_tokens: Option<usize>,
    ) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: cached_tokens.map(|cached_tokens| PromptTokensDetails {
                cached_tokens,
                created_cache_tokens: None,
            }),
            completion_tokens_details: None,
        }
    }

    /// Says how many of the prompt's tokens went into the cache, where it is known how many came from it.
    #[must_use]
    pub fn with_created(mut self, created_tokens: Option<usize>) -> Self {
        if let Some(details) = &mut self.prompt_tokens_details {
            details.created_cache_tokens = created_tokens;
        }
        self
    }

    /// Says how many of the output's tokens were thoughts, where that is known.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning_tokens: Option<usize>) -> Self {
        self.completion_tokens_details =
            reasoning_tokens.map(|reasoning_tokens| CompletionTokensDetails { reasoning_tokens });
        self
    }
}

/// When the tokens of the first output came; null where it says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestTiming {
    /// From when the engine began with the request.
    pub time_to_first_token_ms: Option<f64>,
    /// From the first token to the last.
    pub generation_time_ms: Option<f64>,
    /// Until the engine began with the request.
    pub queue_time_ms: Option<f64>,
    /// Between two tokens.
    pub mean_itl_ms: Option<f64>,
    /// From when the engine began with the request to the last token.
    pub tokens_per_second: Option<f64>,
}

/// The answer of `/v1/chat/completions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatCompletion {
    /// "chatcmpl-...".
    pub id: String,
    /// "chat.completion".
    pub object: Cow<'static, str>,
    /// Unix seconds.
    pub created: u64,
    /// As the request named it, or the first served name.
    pub model: String,
    /// `n` of them.
    pub choices: Vec<ChatChoice>,
    /// Tokens counted.
    pub usage: Usage,
    /// Token ids of the prompt, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<i32>>,
    /// Of the prompt, where `prompt_logprobs` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// When the tokens came, with `--enable-per-request-metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<RequestTiming>,
    /// Versions of the weights that made the tokens, oldest first, where a trainer has updated them; in a stream in the last
    /// chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<String>>,
}

impl ChatCompletion {
    /// The value of `object`.
    pub const OBJECT: &'static str = "chat.completion";
}

/// One output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatChoice {
    /// From 0.
    pub index: u32,
    /// What the model said.
    pub message: AssistantMessage,
    /// Where they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    pub stop_reason: Option<StopReason>,
    /// Token ids of the output, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<i32>>,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssistantMessage {
    /// "assistant".
    pub role: Cow<'static, str>,
    /// The text.
    pub content: Option<String>,
    /// Null: OpenAI's clients want the key.
    pub refusal: Option<String>,
    /// What the model thought, where it is told apart and asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The same under its older name, for clients that ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of tools, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

impl AssistantMessage {
    /// A message of text.
    pub fn text(content: String) -> Self {
        Self {
            role: Cow::Borrowed("assistant"),
            content: Some(content),
            refusal: None,
            reasoning: None,
            reasoning_content: None,
            tool_calls: Vec::new(),
        }
    }
}

/// One event of a streamed `/v1/chat/completions`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatChunk {
    /// The same in all chunks.
    pub id: String,
    /// "chat.completion.chunk".
    pub object: Cow<'static, str>,
    /// The same in all chunks.
    pub created: u64,
    /// The same in all chunks.
    pub model: String,
    /// One, or none in the chunk that carries the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// In the last chunk where `stream_options.include_usage` asked for it, in all where `continuous_usage_stats` did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// In the first chunk: token ids of the prompt, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<i32>>,
    /// In the last chunk: when the tokens came, with `--enable-per-request-metrics`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<RequestTiming>,
    /// Versions of the weights that made the tokens, oldest first, where a trainer has updated them; in a stream in the last
    /// chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<String>>,
}

impl ChatChunk {
    /// The value of `object`.
    pub const OBJECT: &'static str = "chat.completion.chunk";
}

/// What one output gained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatChunkChoice {
    /// From 0.
    pub index: u32,
    /// New text.
    pub delta: ChatDelta,
    /// Where they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Null until the last.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Token ids of the new tokens, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<i32>>,
}

/// New text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatDelta {
    /// "assistant", in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Cow<'static, str>>,
    /// New text; absent in a last chunk that brings none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// New thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The same under its older name, for clients that ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// What calls gained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
}

/// The answer of `/v1/completions`, and each event of its stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Completion {
    /// "cmpl-...".
    pub id: String,
    /// "`text_completion`".
    pub object: Cow<'static, str>,
    /// Unix seconds.
    pub created: u64,
    /// As the request named it, or the first served name.
    pub model: String,
    /// One, or none in the chunk that carries the usage.
    pub choices: Vec<CompletionChoice>,
    /// In an answer; in a stream as in a chat's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// When the tokens came, with `--enable-per-request-metrics`; in a stream in the last chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<RequestTiming>,
    /// Versions of the weights that made the tokens, oldest first, where a trainer has updated them; in a stream in the last
    /// chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<String>>,
}

impl Completion {
    /// The value of `object`.
    pub const OBJECT: &'static str = "text_completion";
}

/// One output, or what it gained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionChoice {
    /// From 0.
    pub index: u32,
    /// The text, or the new text.
    pub text: String,
    /// Where they were asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Null in a stream until the last.
    pub finish_reason: Option<FinishReason>,
    /// What stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Token ids of the prompt, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<i32>>,
    /// Token ids of the output, where `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<i32>>,
    /// Of the prompt, where `prompt_logprobs` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
}
