//! Sampling fields that few requests use, as the client gave them.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::field::{self, wrong};
use crate::sampling::token_id;
use crate::truncation::Truncation;

/// Outputs for one prompt at most.
const MAX_N: i64 = 128;
/// Most bad words of a request.
const MAX_BAD_WORDS: usize = 128;
/// A pattern longer than this is nobody's slip.
const MAX_PATTERN: i64 = 1024;

/// What the client asked for beyond [`crate::SamplingFields`]. Ranges hold already; the renderer compares token ids with
/// the vocabulary and numbers of log probabilities with the server's limit.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtraFields {
    /// From 0 to 1.
    pub min_p: Option<f64>,
    /// From -2 to 2.
    pub presence_penalty: f64,
    /// From -2 to 2.
    pub frequency_penalty: f64,
    /// From 1e-6 to 1e6.
    pub repetition_penalty: Option<f64>,
    /// Tokens before which nothing ends the output.
    pub min_tokens: usize,
    /// Token ids, each with what is added to its logit, from -100 to 100.
    pub logit_bias: Vec<(i32, f32)>,
    /// None empty.
    pub bad_words: Vec<String>,
    /// At least one, where they are given.
    pub allowed_token_ids: Vec<i32>,
    /// How many alternatives each output token comes with; -1: all.
    pub logprobs: Option<i32>,
    /// Likewise each token of the prompt.
    pub prompt_logprobs: Option<i32>,
    /// These instead of the best.
    pub logprob_token_ids: Vec<i32>,
    /// Whether log probabilities name tokens by their ids, `token_id:7`, which no two share.
    pub tokens_as_ids: bool,
    /// When to end an output that turns in circles.
    pub repetition_detection: Option<RepetitionFields>,
    /// When to end thoughts.
    pub thinking: Option<ThinkingFields>,
    /// Tokens between two events of a stream.
    pub stream_interval: u32,
    /// Outputs for each prompt.
    pub n: u32,
    /// Whether the stop string that ends the text is part of it.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// How a prompt that is too long is cut; `None`: it is refused.
    pub truncation: Option<Truncation>,
}

/// `repetition_detection`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepetitionFields {
    /// In tokens, at least `min_pattern_size`.
    pub max_pattern_size: u32,
    /// In tokens, at least 1.
    pub min_pattern_size: u32,
    /// At least 2.
    pub min_count: u32,
}

/// `thinking_token_budget`, and its markers where the request names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkingFields {
    /// In tokens.
    pub budget: u64,
    /// Token ids of the marker behind which thoughts begin.
    pub start: Vec<i32>,
    /// Token ids of the marker that ends them.
    pub end: Vec<i32>,
}

impl Default for ExtraFields {
    fn default() -> Self {
        Self {
            min_p: None,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: None,
            min_tokens: 0,
            logit_bias: Vec::new(),
            bad_words: Vec::new(),
            allowed_token_ids: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            logprob_token_ids: Vec::new(),
            tokens_as_ids: false,
            repetition_detection: None,
            thinking: None,
            stream_interval: 1,
            n: 1,
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            truncation: None,
        }
    }
}

impl ExtraFields {
    /// Takes the fields out of a body, but for `logprobs`, which each route writes in its own way.
    pub(crate) fn take(fields: &mut Map<String, Value>) -> Result<Self, ApiError> {
        let flag = |fields: &mut Map<String, Value>, name| field::boolean(fields, name);
        Ok(Self {
            min_p: range(fields, "min_p", 0.0, 1.0)?,
            presence_penalty: range(fields, "presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            frequency_penalty: range(fields, "frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            repetition_penalty: range(fields, "repetition_penalty", 1e-6, 1e6)?,
            min_tokens: min_tokens(fields)?,
            logit_bias: logit_bias(fields)?,
            bad_words: bad_words(fields)?,
            allowed_token_ids: allowed_token_ids(fields)?,
            logprobs: None,
            prompt_logprobs: count(fields, "prompt_logprobs")?,
            logprob_token_ids: ids(fields, "logprob_token_ids")?,
            tokens_as_ids: false,
            repetition_detection: repetition(fields)?,
            thinking: thinking(fields)?,
            stream_interval: small(fields, "stream_interval", 1, i64::from(u32::MAX))?.unwrap_or(1),
            n: small(fields, "n", 1, MAX_N)?.unwrap_or(1),
            include_stop_str_in_output: flag(fields, "include_stop_str_in_output")?
                .unwrap_or(false),
            skip_special_tokens: flag(fields, "skip_special_tokens")?.unwrap_or(true),
            truncation: None,
        })
    }

    /// Reads the fields of a chat: `logprobs` says whether, `top_logprobs` how many.
    pub(crate) fn take_chat_logprobs(
        &mut self,
        fields: &mut Map<String, Value>,
    ) -> Result<(), ApiError> {
        let wanted = field::boolean(fields, "logprobs")?.unwrap_or(false);
        let top = count(fields, "top_logprobs")?;
        if top.is_some_and(|top| top != 0) && !wanted {
            let message = "'top_logprobs' is allowed only when 'logprobs' is true.";
            return Err(ApiError::invalid("top_logprobs", message));
        }
        self.logprobs = (wanted || !self.logprob_token_ids.is_empty()).then(|| top.unwrap_or(0));
        self.take_names(fields)
    }

    /// Reads how a prompt that is too long is cut: where it is not said, the end is kept, which the output continues.
    pub(crate) fn take_truncation(
        &mut self,
        fields: &mut Map<String, Value>,
    ) -> Result<(), ApiError> {
        self.truncation = Truncation::take(fields, true)?;
        Ok(())
    }

    fn take_names(&mut self, fields: &mut Map<String, Value>) -> Result<(), ApiError> {
        let given = field::boolean(fields, "return_tokens_as_token_ids")?;
        self.tokens_as_ids = given.unwrap_or(false);
        Ok(())
    }

    /// Refuses what a stream has no place for.
    pub(crate) fn check_stream(&self, stream: bool) -> Result<(), ApiError> {
        if stream && self.prompt_logprobs.is_some() {
            let message = "'prompt_logprobs' is not available in a stream; leave 'stream' out.";
            return Err(ApiError::invalid("prompt_logprobs", message));
        }
        Ok(())
    }

    /// Reads the field of a completion: how many.
    pub(crate) fn take_completion_logprobs(
        &mut self,
        fields: &mut Map<String, Value>,
    ) -> Result<(), ApiError> {
        let implied = (!self.logprob_token_ids.is_empty()).then_some(0);
        self.logprobs = count(fields, "logprobs")?.or(implied);
        self.take_names(fields)
    }
}

fn range(
    fields: &mut Map<String, Value>,
    name: &str,
    low: f64,
    high: f64,
) -> Result<Option<f64>, ApiError> {
    let value = field::number(fields, name)?;
    match value {
        Some(number) if !(low..=high).contains(&number) => Err(ApiError::invalid(
            name,
            format!("'{name}' must be from {low} to {high}; got {number}."),
        )),
        _ => Ok(value),
    }
}

/// An integer in a range that fits 32 bits.
fn small(
    fields: &mut Map<String, Value>,
    name: &str,
    low: i64,
    high: i64,
) -> Result<Option<u32>, ApiError> {
    let wanted = format!("an integer from {low} to {high}");
    let Some(number) = field::integer(fields, name, low, &wanted)? else {
        return Ok(None);
    };
    if number > high {
        return Err(wrong(name, &wanted, &Value::from(number)));
    }
    Ok(u32::try_from(number).ok())
}

/// How many log probabilities; -1 for all.
fn count(fields: &mut Map<String, Value>, name: &str) -> Result<Option<i32>, ApiError> {
    let wanted = "an integer: 0 or more, or -1 for the whole vocabulary";
    let value = field::integer(fields, name, -1, wanted)?;
    Ok(value.map(|number| i32::try_from(number).unwrap_or(i32::MAX)))
}

fn min_tokens(fields: &mut Map<String, Value>) -> Result<usize, ApiError> {
    let value = field::integer(fields, "min_tokens", 0, "an integer of at least 0")?;
    Ok(value.map_or(0, |number| usize::try_from(number).unwrap_or(usize::MAX)))
}

fn logit_bias(fields: &mut Map<String, Value>) -> Result<Vec<(i32, f32)>, ApiError> {
    let given = field::object(fields, "logit_bias")?.unwrap_or_default();
    let mut biases = Vec::with_capacity(given.len());
    for (key, value) in given {
        let id = key
            .trim()
            .parse::<i32>()
            .ok()
            .filter(|id| *id >= 0)
            .ok_or_else(|| {
                let message = format!(
                    "'logit_bias' has the key {}; keys are token ids, integers from 0 to {}.",
                    field::shown(&Value::String(key.clone())),
                    i32::MAX
                );
                ApiError::invalid("logit_bias", message)
            })?;
        let bias = value
            .as_f64()
            .filter(|bias| value.is_number() && (-100.0..=100.0).contains(bias))
            .ok_or_else(|| {
                let message = format!(
                    "'logit_bias' of token {id} must be a number from -100 to 100; got {}.",
                    field::shown(&value)
                );
                ApiError::invalid("logit_bias", message)
            })?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the engine adds in float32"
        )]
        biases.push((id, bias as f32));
    }
    Ok(biases)
}

fn bad_words(fields: &mut Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let items = field::list(fields, "bad_words")?.unwrap_or_default();
    if items.len() > MAX_BAD_WORDS {
        let message = format!(
            "'bad_words' may hold {MAX_BAD_WORDS} words; got {}.",
            items.len()
        );
        return Err(ApiError::invalid("bad_words", message));
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::String(text) if !text.is_empty() => Ok(text),
            other => Err(wrong(
                "bad_words",
                "a list of strings, none of them empty",
                &other,
            )),
        })
        .collect()
}

fn allowed_token_ids(fields: &mut Map<String, Value>) -> Result<Vec<i32>, ApiError> {
    let Some(items) = field::list(fields, "allowed_token_ids")? else {
        return Ok(Vec::new());
    };
    if items.is_empty() {
        let message =
            "'allowed_token_ids' must hold at least one token id; leave it out to allow all.";
        return Err(ApiError::invalid("allowed_token_ids", message));
    }
    each_id(&items, "allowed_token_ids")
}

fn ids(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<i32>, ApiError> {
    each_id(&field::list(fields, name)?.unwrap_or_default(), name)
}

fn each_id(items: &[Value], name: &str) -> Result<Vec<i32>, ApiError> {
    items.iter().map(|item| token_id(item, name)).collect()
}

fn repetition(fields: &mut Map<String, Value>) -> Result<Option<RepetitionFields>, ApiError> {
    const NAME: &str = "repetition_detection";
    let Some(mut given) = field::object(fields, NAME)? else {
        return Ok(None);
    };
    let mut part = |name: &str, low: i64, high: i64| {
        small(&mut given, name, low, high).map_err(|error| error.on(format!("{NAME}.{name}")))
    };
    let max_pattern_size = part("max_pattern_size", 0, MAX_PATTERN)?.unwrap_or(0);
    let min_pattern_size = part("min_pattern_size", 0, MAX_PATTERN)?
        .unwrap_or(0)
        .max(1);
    let min_count = part("min_count", 0, MAX_PATTERN)?.unwrap_or(0);
    if max_pattern_size == 0 {
        return Ok(None); // as in vLLM: no detection
    }
    if min_pattern_size > max_pattern_size {
        let message = format!(
            "'{NAME}.min_pattern_size' must not be above max_pattern_size, which is {max_pattern_size}; got {min_pattern_size}."
        );
        return Err(ApiError::invalid(
            format!("{NAME}.min_pattern_size"),
            message,
        ));
    }
    if min_count < 2 {
        let message = format!("'{NAME}.min_count' must be at least 2; got {min_count}.");
        return Err(ApiError::invalid(format!("{NAME}.min_count"), message));
    }
    Ok(Some(RepetitionFields {
        max_pattern_size,
        min_pattern_size,
        min_count,
    }))
}

/// The budget, and the two lists of ids with which a request may name the markers.
fn thinking(fields: &mut Map<String, Value>) -> Result<Option<ThinkingFields>, ApiError> {
    let wanted = "an integer: 0 or more tokens, or -1 for no budget";
    let budget = field::integer(fields, "thinking_token_budget", -1, wanted)?;
    let start = ids(fields, "thinking_start_token_ids")?;
    let end = ids(fields, "thinking_end_token_ids")?;
    if start.is_empty() != end.is_empty() {
        let name = if start.is_empty() {
            "thinking_start_token_ids"
        } else {
            "thinking_end_token_ids"
        };
        let message = format!("'{name}' is missing: a request names both markers or none.");
        return Err(ApiError::invalid(name, message));
    }
    Ok(budget
        .and_then(|budget| u64::try_from(budget).ok())
        .map(|budget| ThinkingFields { budget, start, end }))
}
