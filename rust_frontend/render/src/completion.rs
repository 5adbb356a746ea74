//! Plain prompts: texts, token ids and vectors.

use std::ops::Range;

use octavo_api::{ApiError, CompletionRequest, Prompt};

use crate::prepared::{Limits, Prepared};
use crate::renderer::Renderer;
use crate::truncate::{Cut, shorten};

impl Renderer {
    /// Renders a plain prompt.
    ///
    /// # Errors
    /// 400: a prompt that is empty or too long, ids outside the vocabulary.
    pub fn completion(
        &self,
        request: &CompletionRequest,
        limits: Limits,
    ) -> Result<Prepared, ApiError> {
        let mut fields = request.sampling.clone();
        if request.echo {
            // What stands before the output has log probabilities too.
            let extras = &mut fields.extras;
            extras.prompt_logprobs = widest(extras.prompt_logprobs, extras.logprobs);
        }
        let cut = self.cut(&fields, limits)?;
        let (ids, shown) = match &request.prompt {
            Prompt::Text(text) => {
                let (ids, kept) = self.text(text, request.add_special_tokens, cut, limits)?;
                let shown = request.echo.then(|| match kept {
                    None => text.clone(),
                    Some(kept) => self.whole_text(&ids[kept]),
                });
                (ids, shown)
            }
            Prompt::Tokens(ids) => {
                let ids = ids.iter().map(|id| id.cast_unsigned()).collect();
                let ids = shorten(ids, cut);
                let shown = request.echo.then(|| self.whole_text(&ids));
                (ids, shown)
            }
            Prompt::Embeds(encoded) => return self.embedded(encoded, request, cut, limits),
        };
        let mut prepared = self.prepare(ids, &fields, limits, "prompt")?;
        if shown.is_some() {
            // It stands before each output.
            prepared.prompt_values = prepared.prompt_values.saturating_mul(prepared.n as usize);
        }
        prepared.echo = shown;
        prepared.grammar = self.grammar(&request.structured, limits)?;
        Ok(prepared)
    }

    /// The tokens of a text, and which of them are the text's where it was cut.
    fn text(
        &self,
        text: &str,
        special: bool,
        cut: Option<Cut>,
        limits: Limits,
    ) -> Result<(Vec<u32>, Option<Range<usize>>), ApiError> {
        let Some(cut) = cut else {
            return Ok((self.encode(text, special, limits, "prompt")?, None));
        };
        let (encoding, kept) = self.encode_cut(text, special, false, cut, limits)?;
        Ok((encoding.ids, kept))
    }

    /// The text of ids, special tokens included.
    fn whole_text(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut decoder = self.tokenizer().decoder(&[]).with_special();
        decoder.push(ids, &mut text);
        decoder.finish(&mut text);
        text
    }
}

/// The larger of two numbers of log probabilities, of which -1 is all.
fn widest(one: Option<i32>, other: Option<i32>) -> Option<i32> {
    match (one, other) {
        (Some(one), Some(other)) if one < 0 || other < 0 => Some(-1),
        _ => one.max(other),
    }
}
