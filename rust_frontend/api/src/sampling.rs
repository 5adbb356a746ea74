//! Sampling fields that all generating routes share, as the client gave them.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::extras::ExtraFields;
use crate::field::{self, wrong};

/// Most stop strings of a request.
const MAX_STOPS: usize = 4;

/// Most explicit stop ids of a request: each step compares against all of them.
const MAX_STOP_IDS: usize = 128;

/// What the client asked for; `None` is what it left to the server. Ranges hold already.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingFields {
    /// At least 0; 0 is greedy.
    pub temperature: Option<f64>,
    /// Above 0, at most 1.
    pub top_p: Option<f64>,
    /// At least 1, or 0 for all; -1 has become 0.
    pub top_k: Option<u32>,
    /// Any 64-bit integer.
    pub seed: Option<i64>,
    /// Most output tokens, at least 1. `max_completion_tokens` where both came.
    pub max_tokens: Option<usize>,
    /// At most four, none empty.
    pub stop: Vec<String>,
    /// Not negative; the renderer compares them with the vocabulary.
    pub stop_token_ids: Vec<i32>,
    /// Whether the model's own end tokens do not end the output.
    pub ignore_eos: bool,
    /// What few requests use.
    pub extras: ExtraFields,
}

impl SamplingFields {
    /// Takes the fields out of a body; `max_tokens` is the name of the field that the route prefers.
    pub(crate) fn take(fields: &mut Map<String, Value>, limits: &[&str]) -> Result<Self, ApiError> {
        Ok(Self {
            temperature: temperature(fields)?,
            top_p: top_p(fields)?,
            top_k: top_k(fields)?,
            seed: field::integer(fields, "seed", i64::MIN, "an integer from -2^63 to 2^63-1")?,
            max_tokens: max_tokens(fields, limits)?,
            stop: stop(fields)?,
            stop_token_ids: stop_token_ids(fields)?,
            ignore_eos: field::boolean(fields, "ignore_eos")?.unwrap_or(false),
            extras: ExtraFields::take(fields)?,
        })
    }
}

fn temperature(fields: &mut Map<String, Value>) -> Result<Option<f64>, ApiError> {
    let value = field::number(fields, "temperature")?;
    match value {
        // vLLM sets no upper bound and OpenAI 2.0; what a sampler divides by must survive fp32.
        Some(number) if !(0.0..=1e9).contains(&number) => Err(ApiError::invalid(
            "temperature",
            format!("'temperature' must be from 0 (greedy) to 1e9; got {number}."),
        )),
        _ => Ok(value),
    }
}

fn top_p(fields: &mut Map<String, Value>) -> Result<Option<f64>, ApiError> {
    let value = field::number(fields, "top_p")?;
    match value {
        Some(number) if !(number > 0.0 && number <= 1.0) => Err(ApiError::invalid(
            "top_p",
            format!("'top_p' must be above 0 and at most 1; got {number}."),
        )),
        _ => Ok(value),
    }
}

fn top_k(fields: &mut Map<String, Value>) -> Result<Option<u32>, ApiError> {
    let wanted = "an integer: at least 1, or 0 or -1 for all tokens";
    let value = field::integer(fields, "top_k", -1, wanted)?;
    // Beyond any vocabulary is all tokens; the wire carries 32 bits.
    Ok(value.map(|number| u32::try_from(number.max(0)).unwrap_or(0)))
}

fn max_tokens(fields: &mut Map<String, Value>, names: &[&str]) -> Result<Option<usize>, ApiError> {
    let mut chosen = None;
    for name in names {
        let value = field::integer(fields, name, 1, "an integer of at least 1")?;
        chosen = chosen.or(value);
    }
    Ok(chosen.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
}

fn stop(fields: &mut Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let wanted = "a string or a list of at most 4 strings, none of them empty";
    let items = match field::take(fields, "stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(one)) => vec![Value::String(one)],
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("stop", wanted, &other)),
    };
    if items.len() > MAX_STOPS {
        return Err(ApiError::invalid(
            "stop",
            format!("'stop' must be {wanted}; got {} strings.", items.len()),
        ));
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::String(text) if !text.is_empty() => Ok(text),
            other => Err(wrong("stop", wanted, &other)),
        })
        .collect()
}

fn stop_token_ids(fields: &mut Map<String, Value>) -> Result<Vec<i32>, ApiError> {
    let items = field::list(fields, "stop_token_ids")?.unwrap_or_default();
    if items.len() > MAX_STOP_IDS {
        let message = format!(
            "'stop_token_ids' may hold {MAX_STOP_IDS} ids; got {}.",
            items.len()
        );
        return Err(ApiError::invalid("stop_token_ids", message));
    }
    items
        .iter()
        .map(|item| token_id(item, "stop_token_ids"))
        .collect()
}

/// Reads one token id, which the wire carries as an int32.
pub(crate) fn token_id(item: &Value, name: &str) -> Result<i32, ApiError> {
    let id = item
        .as_i64()
        .filter(|id| *id >= 0)
        .and_then(|id| i32::try_from(id).ok());
    id.ok_or_else(|| {
        let message = format!(
            "'{name}' must hold token ids, integers from 0 to {}; got {}.",
            i32::MAX,
            field::shown(item)
        );
        ApiError::invalid(name, message)
    })
}
