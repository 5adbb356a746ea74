//! Log probabilities as clients get them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// JSON has no minus infinity; vLLM writes this for it.
pub const LEAST: f64 = -9999.0;

/// Of a chat's output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatLogprobs {
    /// One for each token.
    pub content: Vec<ChatLogprob>,
}

/// One token of a chat's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChatLogprob {
    /// Its text; U+FFFD stands for bytes that are no character by themselves.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f64,
    /// Its own bytes.
    pub bytes: Vec<u8>,
    /// The likeliest tokens at its place, best first.
    pub top_logprobs: Vec<TopLogprob>,
}

/// A token that might have come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopLogprob {
    /// Its text.
    pub token: String,
    /// Natural logarithm.
    pub logprob: f64,
    /// Its own bytes.
    pub bytes: Vec<u8>,
}

/// Of a completion: lists with one item for each token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionLogprobs {
    /// Where each token's text begins, in characters: counted from the beginning of `text`, over all chunks of a stream.
    pub text_offset: Vec<usize>,
    /// Natural logarithms; null for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f64>>,
    /// Texts.
    pub tokens: Vec<String>,
    /// By text: the token itself and the likeliest ones; null like the logarithm.
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
}

impl CompletionLogprobs {
    /// Appends those of further tokens.
    pub fn extend(&mut self, more: Self) {
        self.text_offset.extend(more.text_offset);
        self.token_logprobs.extend(more.token_logprobs);
        self.tokens.extend(more.tokens);
        self.top_logprobs.extend(more.top_logprobs);
    }
}

/// Of a prompt, as vLLM writes it: null for the first token; for each other one, by token id, the token itself and the
/// likeliest ones.
pub type PromptLogprobs = Vec<Option<Map<String, Value>>>;
