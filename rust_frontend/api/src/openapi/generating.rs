//! What the bodies of chats and completions have in common.

use schemars::JsonSchema;

use super::StreamOptionsBody;
use super::sampling::{Beam, Sampling, Scheduling, Structured, Told};

/// What is asked of an output, whatever it continues.
#[derive(JsonSchema)]
pub(super) struct Generating {
    /// A served name; the first one if absent.
    model: Option<String>,
    /// Whether to answer as a stream of events.
    stream: Option<bool>,
    /// Of the stream.
    stream_options: Option<StreamOptionsBody>,
    /// Whether the tokenizer adds its special tokens.
    add_special_tokens: Option<bool>,
    /// Whether the answer carries token ids.
    return_token_ids: Option<bool>,
    /// For the log.
    user: Option<String>,
    /// What the client calls the request; names the answer, behind a prefix.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.:-]{1,128}$"))]
    request_id: Option<String>,
    #[schemars(flatten)]
    sampling: Sampling,
    #[schemars(flatten)]
    told: Told,
    #[schemars(flatten)]
    scheduling: Scheduling,
    #[schemars(flatten)]
    structured: Structured,
    #[schemars(flatten)]
    beam: Beam,
}
