//! Prompts and texts that are cut to a number of tokens.

use std::ops::Range;

use octavo_api::{ApiError, SamplingFields, Truncation};
use octavo_tokenizer::Encoding;

use crate::prepared::Limits;
use crate::prompts::ChatPrompt;
use crate::renderer::{Renderer, unusable};

/// Texts of so many bytes are encoded, whatever the context: of many kinds of tokenizers nobody knows how few tokens a text
/// has, and those that are cut are encoded whole before.
const MAX_TEXT: usize = 1 << 20;

/// With longer contexts, so many bytes for each token.
const LONG_TOKEN: usize = 32;

const TOKENS: &str = "truncate_prompt_tokens";

/// How many tokens are kept, and whether at the end of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) most: usize,
    pub(crate) left: bool,
}

impl Cut {
    /// Of a text that becomes a vector: it needs no room behind it.
    ///
    /// # Errors
    /// 400: more tokens than the model takes.
    pub(crate) fn of_text(
        truncation: Option<Truncation>,
        limits: Limits,
    ) -> Result<Option<Self>, ApiError> {
        let context = limits.max_model_len;
        Self::within(truncation, context, context)
    }

    /// Of a prompt. Where as many tokens are kept as the model takes, that is what the output leaves of the context:
    /// `max_tokens` as the client says it, else `default` where it leaves anything, else one token.
    ///
    /// # Errors
    /// 400: more tokens than the model takes before an output; an output that leaves none.
    pub(crate) fn of_prompt(
        fields: &SamplingFields,
        default: Option<u64>,
        limits: Limits,
    ) -> Result<Option<Self>, ApiError> {
        let truncation = fields.extras.truncation;
        let context = limits.max_model_len;
        let default = default.and_then(|tokens| usize::try_from(tokens).ok());
        let default = default.filter(|tokens| *tokens < context);
        let output = fields.max_tokens.or(default).unwrap_or(1);
        let room = context.saturating_sub(output);
        if room == 0 && truncation.is_some_and(|given| given.tokens.is_none()) {
            let message = format!(
                "'{TOKENS}' -1 keeps what the output leaves of the context of {context} tokens, and an output of {output} leaves \
                 nothing. Ask for fewer tokens of output, or name the number of tokens that are kept."
            );
            return Err(ApiError::invalid(TOKENS, message));
        }
        Self::within(truncation, room, context.saturating_sub(1))
    }

    fn within(
        truncation: Option<Truncation>,
        whole: usize,
        limit: usize,
    ) -> Result<Option<Self>, ApiError> {
        let Some(Truncation { tokens, left }) = truncation else {
            return Ok(None);
        };
        let most = tokens.unwrap_or(whole);
        if most > limit {
            let message = format!(
                "'{TOKENS}' must be at most {limit}, the tokens that this model takes; got {most}."
            );
            return Err(ApiError::invalid(TOKENS, message));
        }
        Ok(Some(Self { most, left }))
    }

    /// The places that stay of so many.
    pub(crate) fn range(self, length: usize) -> Range<usize> {
        let kept = self.most.min(length);
        if self.left {
            length - kept..length
        } else {
            0..kept
        }
    }
}

/// What stays of a list with an entry for each token.
pub(crate) fn shorten<T>(mut items: Vec<T>, cut: Option<Cut>) -> Vec<T> {
    if let Some(cut) = cut {
        let kept = cut.range(items.len());
        items.truncate(kept.end);
        items.drain(..kept.start);
    }
    items
}

/// Refuses a text that would take long to be encoded whole before it is cut: nobody can stop that once it runs.
///
/// # Errors
/// 400 that says how long it is.
pub(crate) fn readable(bytes: usize, limits: Limits, param: &str) -> Result<(), ApiError> {
    let long = limits.max_model_len.saturating_mul(LONG_TOKEN);
    let most = long.max(MAX_TEXT);
    if bytes <= most {
        return Ok(());
    }
    let message = format!(
        "'{param}' is a text of {bytes} bytes; this server reads {most} at most. Send less of it."
    );
    Err(ApiError::invalid(param, message))
}

impl Renderer {
    /// How a prompt with these fields is cut.
    ///
    /// # Errors
    /// As [`Cut::of_prompt`].
    pub(crate) fn cut(
        &self,
        fields: &SamplingFields,
        limits: Limits,
    ) -> Result<Option<Cut>, ApiError> {
        Cut::of_prompt(fields, self.defaults().max_tokens, limits)
    }

    /// The text that the model sees at the end of a prompt of which these ids were kept.
    ///
    /// # Errors
    /// 400: what the tokenizer's decoder cannot join.
    pub(crate) fn kept_text(
        &self,
        prompt: &ChatPrompt,
        ids: &[u32],
        cut: Option<Cut>,
    ) -> Result<String, ApiError> {
        match cut.filter(|cut| !cut.left && ids.len() == cut.most) {
            Some(_) => {
                let text = self.tokenizer().decode_all(ids);
                text.map_err(|error| unusable("messages", &error))
            }
            None => Ok(prompt.parts().concat()),
        }
    }

    /// Encodes a plain text, with the places of its tokens where they are asked for. Where it was cut, returns also which
    /// of the tokens are the text's: the tokenizer's own stand around them.
    ///
    /// # Errors
    /// 400: a text that is too long, or that the tokenizer cannot express.
    pub(crate) fn encode_cut(
        &self,
        text: &str,
        special: bool,
        offsets: bool,
        cut: Cut,
        limits: Limits,
    ) -> Result<(Encoding, Option<Range<usize>>), ApiError> {
        readable(text.len(), limits, "prompt")?;
        let tokenizer = self.tokenizer();
        let whole = if offsets {
            tokenizer.encode_with_offsets(text, special)
        } else {
            let ids = tokenizer.encode(text, special);
            ids.map(|ids| Encoding {
                ids,
                offsets: Vec::new(),
            })
        };
        let short = |whole: &Encoding| whole.ids.len() <= cut.most;
        let kept = whole.and_then(|whole| {
            if short(&whole) {
                return Ok((whole, None));
            }
            let (encoding, kept) = tokenizer.cut(text, whole, cut.most, cut.left)?;
            Ok((encoding, Some(kept)))
        });
        kept.map_err(|error| unusable("prompt", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_either_end() {
        let cut = |most, left| shorten(vec![1, 2, 3, 4], Some(Cut { most, left }));
        assert_eq!(cut(2, true), [3, 4]);
        assert_eq!(cut(2, false), [1, 2]);
        assert_eq!(cut(9, true), [1, 2, 3, 4]);
        assert_eq!(cut(0, true), [0; 0]);
        assert_eq!(shorten(vec![1], None), [1]);
    }
}
