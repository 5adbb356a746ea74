//! A request as the engine gets it.

use std::sync::Arc;

use octavo_wire::frontend::{Grammar, SamplingParams};

use crate::parsers::ParsePlan;

/// What the engine can take, from its `EngineInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of prompt and output together.
    pub max_model_len: usize,
    /// Width of the logits: ids at or above it do not exist.
    pub vocab_size: usize,
}

/// A rendered and validated request.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Prompt token ids, at least one, shorter than `max_model_len`.
    pub prompt: Vec<i32>,
    /// Complete: defaults are filled in, the seed is drawn, `max_tokens` fits into the context.
    pub sampling: SamplingParams,
    /// What the output must be; `None`: any text.
    pub grammar: Option<Grammar>,
    /// For [`crate::Renderer::output`].
    pub output: OutputPlan,
}

/// How to turn the tokens of one output into text. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OutputPlan {
    /// Last tokens of the prompt: what the first output token continues.
    pub(crate) context: Arc<[u32]>,
    /// Stop strings of the request.
    pub(crate) stop: Arc<[String]>,
    /// Ids that end the output, whose text is not shown.
    pub(crate) stop_token_ids: Arc<[i32]>,
    /// Of these, the ones that the request named: a client is told which of them stopped the output.
    pub(crate) explicit: Arc<[i32]>,
    /// How the text is parsed; `None`: it is one text.
    pub(crate) parse: Option<ParsePlan>,
}
