//! `use_beam_search` and what belongs to it.

use crate::body::Body;
use crate::error::ApiError;
use crate::extras::ExtraFields;
use crate::field;

/// Beam search was asked for: `n` beams, of which all are answered with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamFields {
    /// A sum of log probabilities is divided by the number of tokens to this power.
    pub length_penalty: f64,
}

impl BeamFields {
    /// Takes the fields out of a body; `None` where no search is asked for.
    ///
    /// # Errors
    /// 400 for a wrong type, a penalty that is no use, or one without a search.
    pub fn take(body: &mut Body) -> Result<Option<Self>, ApiError> {
        let wanted = field::boolean(&mut body.fields, "use_beam_search")?.unwrap_or(false);
        let penalty = field::number(&mut body.fields, "length_penalty")?.unwrap_or(1.0);
        let refused = |message: String| Err(ApiError::invalid("length_penalty", message));
        if !wanted && (penalty - 1.0).abs() > f64::EPSILON {
            return refused(format!(
                "'length_penalty' is allowed only with \"use_beam_search\": true; got {penalty}."
            ));
        }
        if !(-10.0..=10.0).contains(&penalty) {
            return refused(format!(
                "'length_penalty' must be from -10 to 10; got {penalty}."
            ));
        }
        Ok(wanted.then_some(Self {
            length_penalty: penalty,
        }))
    }

    /// Refuses what would change the scores that the search goes by.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn fits(self, fields: &ExtraFields) -> Result<(), ApiError> {
        let neutral = ExtraFields::default();
        let differs = |one: f64, other: f64| (one - other).abs() > f64::EPSILON;
        let asked = [
            (
                "presence_penalty",
                differs(fields.presence_penalty, neutral.presence_penalty),
            ),
            (
                "frequency_penalty",
                differs(fields.frequency_penalty, neutral.frequency_penalty),
            ),
            (
                "repetition_penalty",
                fields
                    .repetition_penalty
                    .is_some_and(|penalty| differs(penalty, 1.0)),
            ),
            ("min_tokens", fields.min_tokens > 0),
            ("logit_bias", !fields.logit_bias.is_empty()),
            ("bad_words", !fields.bad_words.is_empty()),
            ("allowed_token_ids", !fields.allowed_token_ids.is_empty()),
            ("logprob_token_ids", !fields.logprob_token_ids.is_empty()),
            (
                "repetition_detection",
                fields.repetition_detection.is_some(),
            ),
            ("thinking_token_budget", fields.thinking.is_some()),
        ];
        match asked.iter().find(|(_, asked)| *asked) {
            None => Ok(()),
            Some((name, _)) => {
                let message =
                    format!("'{name}' cannot be combined with 'use_beam_search'. Leave one out.");
                Err(ApiError::invalid(*name, message))
            }
        }
    }
}
