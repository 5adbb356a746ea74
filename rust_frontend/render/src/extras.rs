//! From a request's rarer fields to what the engine gets of them.

use octavo_api::{ApiError, ExtraFields, ThinkingFields};
use octavo_tokenizer::Tokenizer;
use octavo_wire::frontend::{RepetitionDetection, SamplingExtras, ThinkingBudget};
use octavo_wire::{Floats, Tokens};
use serde_json::{Map, Value, json};

use crate::defaults::Defaults;
use crate::prepared::Limits;

/// Tokens of all bad words of a request at most.
const MAX_BAD_TOKENS: usize = 1024;
/// Log probabilities of a request's prompts at most: as JSON each takes some hundred bytes.
const MAX_PROMPT_VALUES: usize = 4 << 20;
/// Markers of thoughts, where the request names none.
const THOUGHTS: (&str, &str) = ("<think>", "</think>");

/// What the fields are judged against.
pub(crate) struct Judge<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) defaults: &'a Defaults,
    pub(crate) limits: Limits,
    /// Log probabilities that may be asked for; `None`: any number.
    pub(crate) max_logprobs: Option<usize>,
}

impl Judge<'_> {
    /// Returns the extras, `None` where nothing is asked for.
    ///
    /// # Errors
    /// 400 that names the field: ids outside the vocabulary, more log probabilities than the server gives.
    pub(crate) fn extras(
        &self,
        fields: &ExtraFields,
        greedy: bool,
        max_tokens: u64,
        prompt: usize,
    ) -> Result<Option<SamplingExtras>, ApiError> {
        self.check(fields, max_tokens, prompt)?;
        let min_tokens = fields.min_tokens as u64;
        let min_p = fields.min_p.or(self.defaults.min_p).unwrap_or(0.0);
        let repetition_penalty = fields
            .repetition_penalty
            .or(self.defaults.repetition_penalty);
        let extras = SamplingExtras {
            min_p: if greedy { 0.0 } else { min_p },
            presence_penalty: fields.presence_penalty,
            frequency_penalty: fields.frequency_penalty,
            repetition_penalty: repetition_penalty.unwrap_or(1.0),
            min_tokens,
            bias_ids: Tokens(fields.logit_bias.iter().map(|(id, _)| *id).collect()),
            biases: Floats(fields.logit_bias.iter().map(|(_, bias)| *bias).collect()),
            allowed_token_ids: Tokens(fields.allowed_token_ids.clone()),
            bad_words: self.bad_words(&fields.bad_words)?,
            logprobs: fields.logprobs,
            prompt_logprobs: fields.prompt_logprobs.filter(|_| prompt > 1),
            logprob_token_ids: Tokens(fields.logprob_token_ids.clone()),
            repetition: fields.repetition_detection.map(|rule| RepetitionDetection {
                max_pattern_size: rule.max_pattern_size,
                min_pattern_size: rule.min_pattern_size,
                min_count: rule.min_count,
            }),
            thinking: fields
                .thinking
                .as_ref()
                .map(|thinking| self.thinking(thinking))
                .transpose()?,
            stream_interval: fields.stream_interval,
        };
        Ok((extras != SamplingExtras::default()).then_some(extras))
    }

    fn check(&self, fields: &ExtraFields, max_tokens: u64, prompt: usize) -> Result<(), ApiError> {
        self.known("logit_bias", fields.logit_bias.iter().map(|(id, _)| *id))?;
        self.known(
            "allowed_token_ids",
            fields.allowed_token_ids.iter().copied(),
        )?;
        self.known(
            "logprob_token_ids",
            fields.logprob_token_ids.iter().copied(),
        )?;
        self.count("logprobs", fields.logprobs)?;
        self.count("prompt_logprobs", fields.prompt_logprobs)?;
        few_enough(prompt_values(fields.prompt_logprobs, prompt, self.limits))?;
        if let Some(max) = self.max_logprobs
            && fields.logprob_token_ids.len() > max.max(1)
        {
            let message = format!(
                "'logprob_token_ids' holds {} ids; this server gives {max} log probabilities with a token (--max-logprobs).",
                fields.logprob_token_ids.len()
            );
            return Err(ApiError::invalid("logprob_token_ids", message));
        }
        let min_tokens = fields.min_tokens;
        if min_tokens as u64 > max_tokens {
            let message = format!(
                "'min_tokens' must not be above the number of tokens that can come, {max_tokens}; got {min_tokens}."
            );
            return Err(ApiError::invalid("min_tokens", message));
        }
        Ok(())
    }

    /// Refuses ids that the model has no logit for.
    fn known(&self, name: &str, ids: impl IntoIterator<Item = i32>) -> Result<(), ApiError> {
        let vocab = self.limits.vocab_size;
        let wrong = ids
            .into_iter()
            .find(|id| usize::try_from(*id).map_or(true, |id| id >= vocab));
        wrong.map_or(Ok(()), |id| {
            let message = format!(
                "'{name}' holds the token id {id}; this model's ids go from 0 to {}.",
                vocab.saturating_sub(1)
            );
            Err(ApiError::invalid(name, message))
        })
    }

    fn count(&self, name: &str, wanted: Option<i32>) -> Result<(), ApiError> {
        let (Some(wanted), Some(max)) = (wanted, self.max_logprobs) else {
            return Ok(());
        };
        if usize::try_from(wanted).is_ok_and(|wanted| wanted <= max) {
            return Ok(());
        }
        let message = format!(
            "'{name}' asks for {}; this server gives at most {max} with a token (--max-logprobs).",
            if wanted < 0 {
                "the whole vocabulary".to_owned()
            } else {
                format!("{wanted} log probabilities")
            }
        );
        Err(ApiError::invalid(name, message))
    }

    /// Each word as its tokens, as it stands at the beginning of a text and behind a space.
    fn bad_words(&self, words: &[String]) -> Result<Vec<Tokens>, ApiError> {
        let mut found: Vec<Tokens> = Vec::new();
        for word in words {
            for form in [word.clone(), format!(" {}", word.trim_start())] {
                let ids = self.encode("bad_words", &form)?;
                if !ids.is_empty() && !found.iter().any(|known| known.0 == ids) {
                    found.push(Tokens(ids));
                }
            }
        }
        let total: usize = found.iter().map(|ids| ids.0.len()).sum();
        if total > MAX_BAD_TOKENS {
            let message = format!(
                "'bad_words' has {total} tokens, spellings with a space in front included; at most {MAX_BAD_TOKENS} are possible."
            );
            return Err(ApiError::invalid("bad_words", message));
        }
        Ok(found)
    }

    fn thinking(&self, fields: &ThinkingFields) -> Result<ThinkingBudget, ApiError> {
        let (start, end) = if fields.start.is_empty() {
            (self.marker(THOUGHTS.0)?, self.marker(THOUGHTS.1)?)
        } else {
            self.known("thinking_start_token_ids", fields.start.iter().copied())?;
            self.known("thinking_end_token_ids", fields.end.iter().copied())?;
            (fields.start.clone(), fields.end.clone())
        };
        Ok(ThinkingBudget {
            budget: fields.budget,
            start: Tokens(start),
            close: Tokens(self.close(&end)),
            end: Tokens(end),
        })
    }

    /// The model's own end of thoughts where a longer end marker ends with it: the model may also end them by itself.
    fn close(&self, end: &[i32]) -> Vec<i32> {
        let own = self.tokenizer.token_to_id(THOUGHTS.1);
        let own = own.map(u32::cast_signed);
        match end {
            [text @ .., last] if !text.is_empty() && own == Some(*last) && !text.contains(last) => {
                vec![*last]
            }
            _ => Vec::new(),
        }
    }

    fn marker(&self, text: &str) -> Result<Vec<i32>, ApiError> {
        match self.tokenizer.token_to_id(text).map(u32::cast_signed) {
            Some(id) => self.known("thinking_token_budget", [id]).map(|()| vec![id]),
            None => {
                let message = format!(
                    "'thinking_token_budget' needs to know what ends thoughts, and this model has no token {text}. Name the \
                     markers with 'thinking_start_token_ids' and 'thinking_end_token_ids'."
                );
                Err(ApiError::invalid("thinking_token_budget", message))
            }
        }
    }

    fn encode(&self, name: &str, text: &str) -> Result<Vec<i32>, ApiError> {
        let ids = self.tokenizer.encode(text, false).map_err(|error| {
            ApiError::invalid(name, format!("'{name}' cannot be used: {error}."))
        })?;
        let ids: Vec<i32> = ids.into_iter().map(u32::cast_signed).collect();
        self.known(name, ids.iter().copied())?;
        Ok(ids)
    }
}

/// A value that asks for something; null where it is the neutral one.
fn some<T: PartialEq + Clone + Into<Value>>(value: &T, neutral: &T) -> Value {
    if value == neutral {
        Value::Null
    } else {
        value.clone().into()
    }
}

/// How many log probabilities come of a prompt.
pub(crate) fn prompt_values(wanted: Option<i32>, prompt: usize, limits: Limits) -> usize {
    wanted.map_or(0, |wanted| {
        let width = usize::try_from(wanted).unwrap_or(limits.vocab_size) + 1;
        prompt.saturating_mul(width)
    })
}

/// Refuses so many log probabilities of prompts in one answer, which the server holds until it is written.
///
/// # Errors
/// 400 that says how many are possible.
pub fn few_enough(values: usize) -> Result<(), ApiError> {
    if values <= MAX_PROMPT_VALUES {
        return Ok(());
    }
    let message = format!(
        "'prompt_logprobs', or 'logprobs' with 'echo', asks for {values} log probabilities of the prompts in all; at most \
         {MAX_PROMPT_VALUES} are possible. Ask for fewer, or send less."
    );
    Err(ApiError::invalid("prompt_logprobs", message))
}

/// The fields as another engine's `sampling_params` has them; null: not asked for.
pub(crate) fn passed_on(fields: &ExtraFields, defaults: &Defaults) -> Vec<(&'static str, Value)> {
    let biases: Map<String, Value> = fields
        .logit_bias
        .iter()
        .map(|(id, bias)| (id.to_string(), json!(bias)))
        .collect();
    let rule = fields.repetition_detection.map(|rule| {
        json!({
            "max_pattern_size": rule.max_pattern_size,
            "min_pattern_size": rule.min_pattern_size,
            "min_count": rule.min_count,
        })
    });
    let thinking = fields.thinking.as_ref();
    let markers = |ids: fn(&ThinkingFields) -> &Vec<i32>| {
        json!(thinking.map(ids).filter(|ids| !ids.is_empty()))
    };
    vec![
        ("n", some(&fields.n, &1)),
        ("min_p", json!(fields.min_p.or(defaults.min_p))),
        ("presence_penalty", some(&fields.presence_penalty, &0.0)),
        ("frequency_penalty", some(&fields.frequency_penalty, &0.0)),
        (
            "repetition_penalty",
            json!(fields.repetition_penalty.or(defaults.repetition_penalty)),
        ),
        ("min_tokens", some(&fields.min_tokens, &0)),
        ("logit_bias", json!((!biases.is_empty()).then_some(biases))),
        ("bad_words", some(&fields.bad_words, &Vec::new())),
        (
            "allowed_token_ids",
            some(&fields.allowed_token_ids, &Vec::new()),
        ),
        ("logprobs", json!(fields.logprobs)),
        ("prompt_logprobs", json!(fields.prompt_logprobs)),
        (
            "logprob_token_ids",
            some(&fields.logprob_token_ids, &Vec::new()),
        ),
        ("repetition_detection", json!(rule)),
        (
            "thinking_token_budget",
            json!(thinking.map(|thinking| thinking.budget)),
        ),
        (
            "thinking_start_token_ids",
            markers(|thinking| &thinking.start),
        ),
        ("thinking_end_token_ids", markers(|thinking| &thinking.end)),
        ("stream_interval", some(&fields.stream_interval, &1)),
        (
            "include_stop_str_in_output",
            some(&fields.include_stop_str_in_output, &false),
        ),
        (
            "skip_special_tokens",
            some(&fields.skip_special_tokens, &true),
        ),
    ]
}
