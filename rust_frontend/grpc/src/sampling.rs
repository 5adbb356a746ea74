//! How to choose tokens, as fields of a body.

use octavo_api::ApiError;
use octavo_http::Kind;
use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::proto::SamplingParams;

/// Fields of bodies that are made of `sampling_params`.
pub(crate) const FIELDS: &[&str] = &[
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "logprobs",
    "prompt_logprobs",
    "logprob_token_ids",
    "repetition_detection",
    "thinking_token_budget",
    "skip_special_tokens",
    "stream_interval",
    "truncate_prompt_tokens",
    "truncation_side",
];

/// Adds the fields that are set.
///
/// # Errors
/// 400 for numbers that are none.
pub(crate) fn add(fields: &mut Fields, given: SamplingParams, kind: Kind) -> Result<(), ApiError> {
    fields.put("n", given.n);
    fields.number("temperature", given.temperature)?;
    fields.number("top_p", given.top_p)?;
    fields.put("top_k", given.top_k);
    fields.number("min_p", given.min_p)?;
    fields.put("seed", given.seed);
    fields.put("max_tokens", given.max_tokens);
    fields.put("min_tokens", given.min_tokens);
    fields.list("stop", given.stop);
    fields.list("stop_token_ids", given.stop_token_ids);
    fields.put(
        "include_stop_str_in_output",
        given.include_stop_str_in_output,
    );
    fields.put("ignore_eos", given.ignore_eos);
    fields.number("presence_penalty", given.presence_penalty)?;
    fields.number("frequency_penalty", given.frequency_penalty)?;
    fields.number("repetition_penalty", given.repetition_penalty)?;
    logit_bias(fields, given.logit_bias)?;
    fields.list("allowed_token_ids", given.allowed_token_ids);
    fields.list("bad_words", given.bad_words);
    match (kind, given.logprobs) {
        (Kind::Chat, Some(count)) => {
            fields.put("logprobs", Some(true));
            fields.put("top_logprobs", Some(count));
        }
        (_, count) => fields.put("logprobs", count),
    }
    fields.put("prompt_logprobs", given.prompt_logprobs);
    fields.list("logprob_token_ids", given.logprob_token_ids);
    if let Some(given) = given.repetition_detection {
        let detection = json!({
            "max_pattern_size": given.max_pattern_size,
            "min_pattern_size": given.min_pattern_size,
            "min_count": given.min_count,
        });
        fields.put("repetition_detection", Some(detection));
    }
    fields.put("thinking_token_budget", given.thinking_token_budget);
    fields.put("skip_special_tokens", given.skip_special_tokens);
    fields.put("stream_interval", given.stream_interval);
    fields.put("truncate_prompt_tokens", given.truncate_prompt_tokens);
    fields.text("truncation_side", given.truncation_side);
    Ok(())
}

/// Biases in the order of their tokens: a map of protobuf has none.
fn logit_bias(
    fields: &mut Fields,
    given: std::collections::HashMap<i32, f32>,
) -> Result<(), ApiError> {
    let mut biases: Vec<(i32, f32)> = given.into_iter().collect();
    biases.sort_unstable_by_key(|(id, _)| *id);
    if let Some((id, bias)) = biases.iter().find(|(_, bias)| !bias.is_finite()) {
        let message = format!("'logit_bias' of token {id} must be a finite number; got {bias}.");
        return Err(ApiError::invalid("logit_bias", message));
    }
    if biases.is_empty() {
        return Ok(());
    }
    let map: Map<String, Value> = biases
        .into_iter()
        .map(|(id, bias)| (id.to_string(), json!(bias)))
        .collect();
    fields.put("logit_bias", Some(map));
    Ok(())
}
