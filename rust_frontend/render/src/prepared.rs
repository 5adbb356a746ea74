//! A request as the engine gets it.

use std::sync::Arc;

use octavo_wire::frontend::{Embeds, Grammar, SamplingParams};

use crate::parsers::ParsePlan;
use crate::seeds::child_seed;

/// What the engine can take, from its `EngineInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of prompt and output together.
    pub max_model_len: usize,
    /// Width of the logits: ids at or above it do not exist.
    pub vocab_size: usize,
}

/// A prompt of vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenPrompt {
    /// One for each token.
    pub embeds: Arc<Embeds>,
    /// The same for the same vectors, and for no others.
    pub content_id: String,
}

/// A rendered and validated request.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Prompt token ids, at least one, shorter than `max_model_len`.
    pub prompt: Vec<i32>,
    /// What stands for the ids, which are 0 then.
    pub given: Option<GivenPrompt>,
    /// Complete: defaults are filled in, the seed is drawn, `max_tokens` fits into the context.
    pub sampling: SamplingParams,
    /// Outputs that are asked for: each has a seed of its own, see [`Prepared::child`].
    pub n: u32,
    /// The text that the prompt was made of, where it stands before the output: `echo`.
    pub echo: Option<String>,
    /// Log probabilities that come of the prompt, over all outputs.
    pub prompt_values: usize,
    /// What the output must be; `None`: any text.
    pub grammar: Option<Grammar>,
    /// For [`crate::Renderer::output`].
    pub output: OutputPlan,
}

impl Prepared {
    /// The prompt's token ids; none where vectors stand for them.
    pub fn prompt_ids(&self) -> Vec<i32> {
        match self.given {
            None => self.prompt.clone(),
            Some(_) => Vec::new(),
        }
    }

    /// Whether tokens come with log probabilities.
    pub fn wants_logprobs(&self) -> bool {
        self.output.logprobs
    }

    /// The parameters of output `index` of `n`. The first is what a request for one output would get; the prompt's log
    /// probabilities are asked for once.
    pub fn child(&self, index: u32) -> SamplingParams {
        let mut sampling = self.sampling.clone();
        if index > 0 {
            sampling.seed = child_seed(sampling.seed, index);
            // An echoed prompt stands before each output.
            if let Some(extras) = sampling.extras.as_mut().filter(|_| self.echo.is_none()) {
                extras.prompt_logprobs = None;
            }
        }
        sampling
    }
}

/// What log probabilities call tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TokenNames {
    /// By their texts.
    #[default]
    Texts,
    /// By their ids: `token_id:7`.
    Ids,
}

impl TokenNames {
    pub(crate) fn by_ids(ids: bool) -> Self {
        if ids { Self::Ids } else { Self::Texts }
    }
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
    /// Whether the stop string that ends the text is part of it.
    pub(crate) include_stop: bool,
    /// Whether special tokens are part of the text.
    pub(crate) special: bool,
    /// Stop strings that end within so many tokens do not count.
    pub(crate) min_tokens: usize,
    /// Whether tokens come with log probabilities, so that it matters whose text is out.
    pub(crate) logprobs: bool,
    /// What log probabilities call tokens.
    pub(crate) names: TokenNames,
    /// How the text is parsed; `None`: it is one text.
    pub(crate) parse: Option<ParsePlan>,
}

impl OutputPlan {
    /// Whether the output is searched for tool calls.
    #[must_use]
    pub fn seeks_calls(&self) -> bool {
        self.parse.as_ref().is_some_and(|plan| plan.calls)
    }
}
