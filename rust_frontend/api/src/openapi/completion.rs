//! The bodies of completions and of token-in-token-out.

use schemars::JsonSchema;
use serde_json::Value;

use super::generating::Generating;
use super::sampling::{Sampling, Scheduling, Structured, Told};
use super::{StreamOptionsBody, TokenId};

/// One prompt of several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum OnePrompt {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(#[schemars(length(min = 1))] Vec<TokenId>),
}

/// A prompt, or several.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Prompts {
    /// A text.
    Text(String),
    /// Token ids.
    Tokens(#[schemars(length(min = 1))] Vec<TokenId>),
    /// Several.
    Several(#[schemars(length(min = 1, max = 1024))] Vec<OnePrompt>),
}

/// Prompts of vectors: files of `torch.save` or safetensors in base64, a vector for each token.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Embeds {
    /// One.
    One(String),
    /// Several.
    Several(#[schemars(length(min = 1, max = 1024))] Vec<String>),
}

/// A text to continue.
#[derive(JsonSchema)]
pub struct CompletionBody {
    /// What to continue; may be absent beside `prompt_embeds`.
    prompt: Option<Prompts>,
    /// Needs `--enable-prompt-embeds`.
    prompt_embeds: Option<Embeds>,
    /// Most output tokens; 0 with `echo`: the prompt alone.
    #[schemars(range(min = 0))]
    max_tokens: Option<i64>,
    /// How many log probabilities each token comes with; -1: all.
    #[schemars(range(min = -1))]
    logprobs: Option<i64>,
    /// Whether the text begins with the prompt.
    echo: Option<bool>,
    #[schemars(flatten)]
    generating: Generating,
}

/// How to sample.
#[derive(JsonSchema)]
struct SamplingParams {
    /// Most output tokens.
    #[schemars(range(min = 1))]
    max_tokens: Option<i64>,
    /// How many log probabilities each token comes with; -1: all.
    #[schemars(range(min = -1))]
    logprobs: Option<i64>,
    #[schemars(flatten)]
    sampling: Sampling,
    #[schemars(flatten)]
    told: Told,
    #[schemars(flatten)]
    structured: Structured,
}

/// Token ids to continue.
#[derive(JsonSchema)]
pub struct GenerateBody {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// Names the request; the answer carries it.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.:-]{1,128}$"))]
    request_id: Option<String>,
    /// The prompt.
    #[schemars(length(min = 1))]
    token_ids: Vec<TokenId>,
    /// How to sample.
    sampling_params: Option<SamplingParams>,
    /// What a render route told beside the prompt; has no effect.
    token_offsets: Option<Value>,
    /// Likewise.
    assistant_tokens_mask: Option<Value>,
    /// Likewise.
    prompt_text: Option<Value>,
    /// Whether to answer as a stream of events.
    stream: Option<bool>,
    /// Of the stream.
    stream_options: Option<StreamOptionsBody>,
    #[schemars(flatten)]
    scheduling: Scheduling,
}
