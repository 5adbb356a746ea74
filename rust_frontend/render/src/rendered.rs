//! Requests as bodies for another engine; plans for outputs that another engine made.

use std::ops::Range;

use octavo_api::{
    ApiError, ChatRequest, CompletionRequest, FinishReason, GenerateRequest, Prompt, SamplingFields,
};
use octavo_tokenizer::Encoding;
use octavo_wire::frontend::Finish;
use serde_json::{Map, Value, json};

use crate::check;
use crate::extras::passed_on;
use crate::output::OutputText;
use crate::prepared::{Limits, OutputPlan, Prepared, TokenNames};
use crate::renderer::{Renderer, far_too_long, unusable};
use crate::truncate::shorten;

/// What the caller wants beside the token ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Which characters each token stands for.
    pub offsets: bool,
    /// Which tokens the assistant said.
    pub assistant_mask: bool,
    /// The prompt's text.
    pub text: bool,
}

/// A rendered request for any engine.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedPrompt {
    /// Prompt token ids, at least one, fewer than the context holds.
    pub token_ids: Vec<i32>,
    /// For each token its first character in the text, and the one behind its last.
    pub offsets: Option<Vec<(usize, usize)>>,
    /// For each token 1 where the assistant said it, else 0.
    pub assistant_mask: Option<Vec<u8>>,
    /// The prompt's text.
    pub text: Option<String>,
    /// `sampling_params` of `/inference/v1/generate`: what the client said, else what generation_config.json says.
    pub sampling: Map<String, Value>,
}

impl Renderer {
    /// Renders a conversation for any engine.
    ///
    /// # Errors
    /// As [`Self::chat`]; what is wanted and this model cannot give.
    pub fn render_chat(
        &self,
        request: &ChatRequest,
        limits: Limits,
        wanted: Wanted,
    ) -> Result<RenderedPrompt, ApiError> {
        let special = request.template.add_special_tokens;
        let cut = self.cut(&request.sampling, limits)?;
        let spans = match wanted.assistant_mask {
            true => Some(self.assistant(request)?),
            false => None,
        };
        let prompt = self.prompts().render(request)?;
        self.bounded(&prompt, cut, limits)?;
        let offsets = wanted.offsets || wanted.assistant_mask;
        let encoding = prompt
            .encode_cut(self.tokenizer(), special, offsets, cut)
            .map_err(|error| unusable("messages", &error))?;
        check::prompt(&encoding.ids, limits, "messages")?;
        let mut sampling = self.sampling_params(&request.sampling, limits, encoding.ids.len())?;
        let seen = || self.kept_text(&prompt, &encoding.ids, cut);
        if let Some(form) = self.chat_form(request, seen, limits)? {
            sampling.insert("structured_outputs".to_owned(), form);
        }
        Ok(RenderedPrompt {
            assistant_mask: spans.map(|spans| encoding.mask(&spans)),
            token_ids: signed(encoding.ids),
            offsets: wanted.offsets.then_some(encoding.offsets),
            text: wanted.text.then(|| prompt.text()),
            sampling,
        })
    }

    /// The characters of the prompt that an assistant wrote.
    fn assistant(&self, request: &ChatRequest) -> Result<Vec<Range<usize>>, ApiError> {
        if self.marks_assistant(request)? {
            return Ok(self.chat_parts(request)?.assistant);
        }
        let name = "return_assistant_tokens_mask";
        let message = format!(
            "'{name}' cannot be answered: this model's chat template does not mark what the assistant said \
             ({{% generation %}})."
        );
        Err(ApiError::unsupported(name, message))
    }

    /// Tokenizes a conversation whose prompt has at most so many bytes of text. `limits` bound what it is cut to.
    ///
    /// # Errors
    /// 400: as [`Self::chat_text`]; a longer text.
    pub fn chat_tokens(
        &self,
        request: &ChatRequest,
        most: usize,
        limits: Limits,
    ) -> Result<Vec<u32>, ApiError> {
        let cut = self.cut(&request.sampling, limits)?;
        let prompt = self.prompts().render(request)?;
        let length: usize = prompt.parts().iter().map(|part| part.len()).sum();
        if length > most {
            let message = format!(
                "'messages' give a text of {length} bytes; at most {most} are tokenized at a time. Send fewer."
            );
            return Err(ApiError::invalid("messages", message));
        }
        let special = request.template.add_special_tokens;
        let encoding = prompt.encode_cut(self.tokenizer(), special, false, cut);
        encoding
            .map(|encoding| encoding.ids)
            .map_err(|error| unusable("messages", &error))
    }

    /// Renders a plain prompt for any engine.
    ///
    /// # Errors
    /// As [`Self::completion`]; what is wanted and this model cannot give.
    pub fn render_completion(
        &self,
        request: &CompletionRequest,
        limits: Limits,
        wanted: Wanted,
    ) -> Result<RenderedPrompt, ApiError> {
        let cut = self.cut(&request.sampling, limits)?;
        let (encoding, text) = match &request.prompt {
            Prompt::Text(text) => {
                let special = request.add_special_tokens;
                let encoding = match cut {
                    Some(cut) => {
                        self.encode_cut(text, special, wanted.offsets, cut, limits)?
                            .0
                    }
                    None => self.places(text, special, limits, "prompt", wanted.offsets)?,
                };
                (encoding, Some(text))
            }
            Prompt::Tokens(ids) => {
                let asked = [
                    (wanted.offsets, "return_token_offsets"),
                    (wanted.text, "return_prompt_text"),
                ];
                if let Some((_, name)) = asked.iter().find(|(asked, _)| *asked) {
                    let message = format!(
                        "'{name}' needs a prompt that is text; 'prompt' holds token ids. Leave it out or send text."
                    );
                    return Err(ApiError::invalid(*name, message));
                }
                let ids = ids.iter().map(|id| id.cast_unsigned()).collect();
                let (ids, offsets) = (shorten(ids, cut), Vec::new());
                (Encoding { ids, offsets }, None)
            }
            Prompt::Embeds(_) => {
                let message = "'prompt_embeds' cannot be rendered: it has neither text nor token ids. Leave it out, or \
                               send it to /v1/completions.";
                return Err(ApiError::invalid("prompt_embeds", message));
            }
        };
        check::prompt(&encoding.ids, limits, "prompt")?;
        let mut sampling = self.sampling_params(&request.sampling, limits, encoding.ids.len())?;
        // What cannot be enforced is refused here, not by the engine.
        self.grammar(&request.structured, limits)?;
        if let Some(form) = request.structured.outputs() {
            sampling.insert("structured_outputs".to_owned(), form.into());
        }
        Ok(RenderedPrompt {
            token_ids: signed(encoding.ids),
            offsets: wanted.offsets.then_some(encoding.offsets),
            assistant_mask: None,
            text: text.filter(|_| wanted.text).cloned(),
            sampling,
        })
    }

    /// Prepares ids that were rendered elsewhere.
    ///
    /// # Errors
    /// 400: ids that are too many or outside the vocabulary.
    pub fn generate(&self, request: GenerateRequest, limits: Limits) -> Result<Prepared, ApiError> {
        let cut = self.cut(&request.sampling, limits);
        let cut = cut.map_err(|error| error.within("sampling_params"))?;
        let ids = request.token_ids.iter().map(|id| id.cast_unsigned());
        let ids = shorten(ids.collect(), cut);
        let mut prepared = self.prepare(ids, &request.sampling, limits, "token_ids")?;
        let grammar = self.grammar(&request.structured, limits);
        prepared.grammar = grammar.map_err(|error| error.within("sampling_params"))?;
        Ok(prepared)
    }

    /// Encodes, with offsets only where they are asked for: they cost time.
    fn places(
        &self,
        text: &str,
        special: bool,
        limits: Limits,
        param: &str,
        asks: bool,
    ) -> Result<Encoding, ApiError> {
        if !asks {
            let offsets = Vec::new();
            let ids = self.encode(text, special, limits, param)?;
            return Ok(Encoding { ids, offsets });
        }
        far_too_long(self.tokenizer().least_tokens(text), limits, param)?;
        self.tokenizer()
            .encode_with_offsets(text, special)
            .map_err(|error| unusable(param, &error))
    }

    /// How to turn an output into text that this process did not prepare: `prompt` are the last ids of its prompt, or
    /// none.
    ///
    /// # Errors
    /// 400: ids outside the vocabulary.
    pub fn output_plan(
        &self,
        sampling: Option<&SamplingFields>,
        prompt: &[i32],
        limits: Limits,
    ) -> Result<OutputPlan, ApiError> {
        let prompt = self.known_ids(prompt, "prompt_token_ids", limits)?;
        let fields = sampling.cloned().unwrap_or_default();
        let params = self.sampling(&fields, limits, prompt.len())?;
        Ok(OutputPlan {
            context: self.tokenizer().context(&prompt).into(),
            stop: fields.stop.into(),
            stop_token_ids: params.stop_token_ids.into(),
            explicit: fields.stop_token_ids.into(),
            parse: None,
            include_stop: fields.extras.include_stop_str_in_output,
            special: !fields.extras.skip_special_tokens,
            min_tokens: fields.extras.min_tokens,
            logprobs: fields.extras.logprobs.is_some(),
            names: TokenNames::by_ids(fields.extras.tokens_as_ids),
        })
    }

    /// As [`Self::output_plan`], for the answer to a chat: with the parsers of this model. What the prompt ends with is
    /// read off `prompt` where that is given, else rendered again.
    ///
    /// # Errors
    /// 400: ids outside the vocabulary, tools without a parser, what rendering refuses.
    pub fn chat_plan(
        &self,
        request: &ChatRequest,
        prompt: &[i32],
        limits: Limits,
    ) -> Result<OutputPlan, ApiError> {
        self.parsers().permit(request)?;
        let mut plan = self.output_plan(Some(&request.sampling), prompt, limits)?;
        if self.parsers().any() {
            let text = if plan.context.is_empty() {
                self.chat_text(request)?
            } else {
                let ids = self.known_ids(prompt, "prompt_token_ids", limits)?;
                let text = self.tokenizer().decode_all(&ids);
                text.map_err(|error| unusable("prompt_token_ids", &error))?
            };
            let unbegun = || self.prompts().unbegun(request);
            plan.parse = self.parsers().plan(request, &text, unbegun);
        }
        Ok(plan)
    }

    /// Starts the text of one output of which calls get the same ids each time that it is gone through with this seed.
    pub fn output_again(&self, plan: &OutputPlan, seed: u64) -> OutputText {
        OutputText::new(self.decoder(plan), plan.clone(), || seed)
    }

    /// Ids that a client sent, as the tokenizer takes them.
    ///
    /// # Errors
    /// 400: an id that this model does not have.
    pub fn known_ids(
        &self,
        ids: &[i32],
        param: &str,
        limits: Limits,
    ) -> Result<Vec<u32>, ApiError> {
        check::known(ids, limits, param)?;
        Ok(ids.iter().map(|id| id.cast_unsigned()).collect())
    }

    /// `sampling_params` for another engine: seed and end tokens are its own affair unless the client names them.
    fn sampling_params(
        &self,
        fields: &SamplingFields,
        limits: Limits,
        prompt: usize,
    ) -> Result<Map<String, Value>, ApiError> {
        check::known(&fields.stop_token_ids, limits, "stop_token_ids")?;
        let defaults = self.defaults();
        let room = limits.max_model_len.saturating_sub(prompt) as u64;
        let SamplingFields {
            temperature,
            top_p,
            top_k,
            seed,
            max_tokens,
            stop,
            stop_token_ids,
            ignore_eos,
            extras,
        } = fields;
        let max_tokens = max_tokens
            .map(|tokens| tokens as u64)
            .or(defaults.max_tokens);
        let mut params = Map::new();
        let mut put = |name: &str, value: Value| {
            if !value.is_null() {
                params.insert(name.to_owned(), value);
            }
        };
        put("temperature", json!(temperature.or(defaults.temperature)));
        put("top_p", json!(top_p.or(defaults.top_p)));
        put("top_k", json!(top_k.map(u64::from).or(defaults.top_k)));
        put("seed", json!(seed));
        put(
            "max_tokens",
            json!(max_tokens.map(|tokens| tokens.min(room))),
        );
        put("stop", json!((!stop.is_empty()).then_some(stop)));
        let ids = (!stop_token_ids.is_empty()).then_some(stop_token_ids);
        put("stop_token_ids", json!(ids));
        put("ignore_eos", json!(ignore_eos.then_some(true)));
        for (name, value) in passed_on(extras, defaults) {
            put(name, value);
        }
        Ok(params)
    }
}

impl OutputPlan {
    /// The end of an output as an engine tells it: why, and its last token.
    #[must_use]
    pub fn finish(&self, reason: FinishReason, last: Option<&i32>) -> Finish {
        let (reason, stops) = match reason {
            FinishReason::Stop | FinishReason::ToolCalls => ("stop", true),
            FinishReason::Length => ("length", false),
            FinishReason::Repetition => ("repetition", false),
            FinishReason::Abort => ("abort", false),
            FinishReason::Error => ("error", false),
        };
        Finish {
            reason: reason.to_owned(),
            stop_token: last
                .filter(|last| stops && self.stop_token_ids.contains(last))
                .copied(),
            message: None,
        }
    }
}

fn signed(ids: Vec<u32>) -> Vec<i32> {
    ids.into_iter().map(u32::cast_signed).collect()
}
