//! The renderer of one model.

use std::path::{Path, PathBuf};

use octavo_api::{ApiError, ChatRequest, CompletionLogprobs, SamplingFields, SeenMessages};
use octavo_grammar::{Detected, Format, FormatError, Registry};
use octavo_template::{Clock, NativeFormat, Rendered, TemplateSet};
use octavo_tokenizer::{Encoding, IncrementalDecoder, Tokenizer, TokenizerError};
use octavo_wire::frontend::{Logprobs, SamplingParams};

use crate::defaults::Defaults;
use crate::extras::{Judge, prompt_values};
use crate::guide::{Guide, Model};
use crate::logprobs::{self, LogprobText};
use crate::output::OutputText;
use crate::parsers::{self, ParserSettings, Parsers};
use crate::prepared::{Limits, OutputPlan, Prepared, TokenNames};
use crate::prompts::{ChatPrompt, Prompts};
use crate::seeds::Seeds;
use crate::truncate::{Cut, readable};
use crate::{check, limits};

/// Below this a temperature divides logits by so little that only the largest is left: greedy.
const GREEDY_BELOW: f64 = 1e-5;

/// As in vLLM.
const DEFAULT_MAX_LOGPROBS: usize = 20;

/// Why a model folder cannot be rendered for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Template(#[from] octavo_template::LoadError),
    /// Another file.
    #[error("{0} cannot be read as JSON: {1}")]
    File(PathBuf, String),
    /// A file of an output format that cannot be read.
    #[error("--format-file {0}: {1}")]
    FormatFile(PathBuf, String),
    /// An output format that is none.
    #[error("output format {0}")]
    Format(#[from] octavo_grammar::FormatError),
    /// A model whose prompts are not known.
    #[error("this model has no chat template, and {0}")]
    Native(String),
    /// A parser that does not exist.
    #[error(transparent)]
    Parser(#[from] octavo_grammar::UnknownName),
}

/// Turns requests for one model into prompts, and tokens into text. Shared between threads.
#[derive(Debug)]
pub struct Renderer {
    tokenizer: Tokenizer,
    prompts: Prompts,
    defaults: Defaults,
    limits: Limits,
    seeds: Seeds,
    /// Of the bodies of chats.
    seen: SeenMessages,
    /// Log probabilities that may be asked for with a token; `None`: any number.
    max_logprobs: Option<usize>,
    /// Of the ids of calls, which must differ between servers.
    call_seeds: Seeds,
    parsers: Parsers,
    guide: Guide,
    /// The format of the model's response template, where it has one.
    response_template: Option<Result<Format, FormatError>>,
    /// Whether prompts may be vectors.
    pub(crate) takes_embeds: bool,
    warnings: Vec<String>,
}

impl Renderer {
    /// Reads tokenizer.json, `tokenizer_config.json`, the chat template, `generation_config.json` and config.json of a
    /// folder.
    ///
    /// `seed` starts the generator that requests without a seed draw theirs from; `None`: the system's randomness.
    ///
    /// # Errors
    /// A file that is missing or damaged, by name; a decoder or template construct that is not supported. A folder
    /// without a chat template loads: its chat requests are refused.
    pub fn load(dir: &Path, seed: Option<u64>) -> Result<Self, LoadError> {
        Self::load_at(dir, seed, &Clock::System)
    }

    /// Loads with a clock of the caller's choice for templates that write the date.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_at(dir: &Path, seed: Option<u64>, clock: &Clock) -> Result<Self, LoadError> {
        Self::load_from(dir, seed, clock, None)
    }

    /// Loads with a chat template in place of those of the folder, which are not looked at.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_with_template(
        dir: &Path,
        seed: Option<u64>,
        template: &str,
    ) -> Result<Self, LoadError> {
        Self::load_from(dir, seed, &Clock::System, Some(template))
    }

    fn load_from(
        dir: &Path,
        seed: Option<u64>,
        clock: &Clock,
        template: Option<&str>,
    ) -> Result<Self, LoadError> {
        let tokenizer = Tokenizer::load(dir)?;
        let templates = match template {
            Some(source) => TemplateSet::of(source, clock)?,
            None => TemplateSet::load(dir, tokenizer.config(), clock)?,
        };
        let prompts = Prompts::load(dir, &tokenizer, templates, clock)?;
        let defaults = Defaults::load(dir, &tokenizer)?;
        let mut warnings = defaults.warnings.clone();
        for (name, template) in prompts.templates().iter() {
            warnings.extend(template.unknown().iter().map(|unknown| {
                format!("chat template \"{name}\": {unknown} does not exist; conversations that reach it are refused")
            }));
        }
        Ok(Self {
            limits: limits::read(dir, &tokenizer)?,
            tokenizer,
            prompts,
            defaults,
            seeds: Seeds::new(seed),
            seen: SeenMessages::new(),
            max_logprobs: Some(DEFAULT_MAX_LOGPROBS),
            call_seeds: Seeds::new(None),
            parsers: Parsers::default(),
            guide: Guide::default(),
            response_template: parsers::response_template(dir),
            takes_embeds: false,
            warnings,
        })
    }

    /// Sets how many log probabilities a request may ask for with each token; `None`: any number.
    #[must_use]
    pub fn with_max_logprobs(mut self, max_logprobs: Option<usize>) -> Self {
        self.max_logprobs = max_logprobs;
        self
    }

    /// Sends the answers of chats through parsers.
    ///
    /// # Errors
    /// A format file that cannot be read or is no format; a parser's name that nobody has.
    pub fn with_parsers(mut self, settings: &ParserSettings) -> Result<Self, LoadError> {
        let own = self.response_template.clone();
        self.parsers = Parsers::load(settings, own, self.prompts.templates(), &self.tokenizer)?;
        Ok(self)
    }

    /// Lets requests bring templates, which are programs; their work is bounded.
    #[must_use]
    pub fn trusting_templates(mut self, trusting: bool) -> Self {
        self.prompts.trust(trusting);
        self
    }

    /// The format that stands for a template where the model has none.
    pub fn native_format(&self) -> Option<NativeFormat> {
        self.prompts.native()
    }

    /// The response template of the model's `tokenizer_config.json` as a format; `None` where it has none.
    pub fn response_template(&self) -> Option<Result<Format, FormatError>> {
        self.response_template.clone()
    }

    /// The output formats that the model's template and tokens speak of.
    pub fn detect(&self, registry: &Registry) -> Detected {
        parsers::detect(registry, self.prompts.templates(), &self.tokenizer)
    }

    /// Which parsers were chosen and why: one line each, for the log.
    pub fn notes(&self) -> &[String] {
        self.parsers.notes()
    }

    /// What was found and not used while loading (a sampling default that is not supported, an unknown filter in a
    /// branch of the template): one line each, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the model's files say about its limits: for a server that has no engine to ask.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn parsers(&self) -> &Parsers {
        &self.parsers
    }

    pub(crate) fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The messages of chats that came before, for [`octavo_api::Body::parse_chat`].
    pub fn seen(&self) -> &SeenMessages {
        &self.seen
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// 400: no template, the template's own refusal, a prompt that is empty or too long, ids outside the vocabulary.
    pub fn chat(&self, request: &ChatRequest, limits: Limits) -> Result<Prepared, ApiError> {
        self.parsers.permit(request)?;
        let cut = self.cut(&request.sampling, limits)?;
        let rendered = self.prompts.render(request)?;
        self.bounded(&rendered, cut, limits)?;
        let special = request.template.add_special_tokens;
        let prompt = rendered
            .encode_cut(&self.tokenizer, special, false, cut)
            .map_err(|error| unusable("messages", &error))?
            .ids;
        let text = self.kept_text(&rendered, &prompt, cut)?;
        let mut prepared = self.prepare(prompt, &request.sampling, limits, "messages")?;
        let unbegun = || self.prompts.unbegun(request);
        prepared.output.parse = self.parsers.plan(request, &text, unbegun);
        let parse = prepared.output.parse.as_ref();
        prepared.grammar = self.chat_grammar(request, parse, limits)?;
        Ok(prepared)
    }

    /// Refuses a prompt that cannot fit, or would take long to be cut, before it is encoded.
    pub(crate) fn bounded(
        &self,
        prompt: &ChatPrompt,
        cut: Option<Cut>,
        limits: Limits,
    ) -> Result<(), ApiError> {
        let parts = prompt.parts().into_iter();
        if cut.is_some() {
            return readable(parts.map(str::len).sum(), limits, "messages");
        }
        let least = parts.map(|part| self.tokenizer.least_tokens(part)).sum();
        far_too_long(least, limits, "messages")
    }

    /// Renders a conversation to the text of its prompt.
    ///
    /// # Errors
    /// 400: no template, or the template's own refusal.
    pub fn chat_text(&self, request: &ChatRequest) -> Result<String, ApiError> {
        self.prompts.render(request).map(ChatPrompt::text)
    }

    /// Renders a conversation to the text of its prompt, with the parts of it that an assistant wrote: none where the
    /// template does not mark them. With [`Encoding::mask`] they become a mask of tokens.
    ///
    /// # Errors
    /// 400: as [`Self::chat_text`]; a template that does not let the parts be told.
    pub fn chat_parts(&self, request: &ChatRequest) -> Result<Rendered, ApiError> {
        self.prompts.parts(request)
    }

    /// Whether what renders a request tells which parts an assistant wrote (`{% generation %}`).
    ///
    /// # Errors
    /// 400: as [`Self::chat_text`].
    pub fn marks_assistant(&self, request: &ChatRequest) -> Result<bool, ApiError> {
        self.prompts.marks_assistant(request)
    }

    /// Renders a conversation to the tokens of its prompt, as [`Self::chat`] does, with their places in its text.
    ///
    /// # Errors
    /// 400: as [`Self::chat_text`].
    pub fn chat_encoding(&self, request: &ChatRequest) -> Result<Encoding, ApiError> {
        self.prompts
            .render(request)?
            .encode_with_offsets(&self.tokenizer, request.template.add_special_tokens)
            .map_err(|error| unusable("messages", &error))
    }

    pub(crate) fn guide(&self) -> &Guide {
        &self.guide
    }

    pub(crate) fn model(&self, limits: Limits) -> Model<'_> {
        Model {
            tokenizer: &self.tokenizer,
            defaults: &self.defaults,
            width: limits.vocab_size,
        }
    }

    /// Starts the text of one output.
    pub fn output(&self, plan: &OutputPlan) -> OutputText {
        OutputText::new(self.decoder(plan), plan.clone(), || self.call_seeds.draw())
    }

    /// Starts the log probabilities of one output.
    pub fn logprobs(&self, plan: &OutputPlan) -> LogprobText {
        LogprobText::new(self.decoder(plan), plan.names)
    }

    /// The log probabilities of a prompt that stands before its output.
    pub fn echoed(&self, prepared: &Prepared, found: Option<&Logprobs>) -> CompletionLogprobs {
        let text = prepared.echo.as_deref().unwrap_or_default();
        let names = prepared.output.names;
        logprobs::echoed(&self.tokenizer, text, &prepared.prompt, found, names)
    }

    pub(crate) fn decoder(&self, plan: &OutputPlan) -> IncrementalDecoder {
        let decoder = self.tokenizer.decoder(&plan.context);
        if plan.special {
            decoder.with_special()
        } else {
            decoder
        }
    }

    pub(crate) fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        limits: Limits,
        param: &str,
    ) -> Result<Vec<u32>, ApiError> {
        // Encoding takes time and memory many times the text's; nobody can stop it once it runs.
        far_too_long(self.tokenizer.least_tokens(text), limits, param)?;
        self.tokenizer
            .encode(text, add_special_tokens)
            .map_err(|error| unusable(param, &error))
    }

    pub(crate) fn prepare(
        &self,
        ids: Vec<u32>,
        fields: &SamplingFields,
        limits: Limits,
        param: &str,
    ) -> Result<Prepared, ApiError> {
        check::prompt(&ids, limits, param)?;
        check::known(&fields.stop_token_ids, limits, "stop_token_ids")?;
        let sampling = self.sampling(fields, limits, ids.len())?;
        let extras = &fields.extras;
        let output = OutputPlan {
            context: self.tokenizer.context(&ids).into(),
            stop: fields.stop.clone().into(),
            stop_token_ids: sampling.stop_token_ids.clone().into(),
            explicit: fields.stop_token_ids.clone().into(),
            include_stop: extras.include_stop_str_in_output,
            special: !extras.skip_special_tokens,
            min_tokens: extras.min_tokens,
            logprobs: extras.logprobs.is_some(),
            names: TokenNames::by_ids(extras.tokens_as_ids),
            parse: None,
        };
        let length = ids.len();
        Ok(Prepared {
            prompt: ids.into_iter().map(u32::cast_signed).collect(),
            sampling,
            given: None,
            n: extras.n,
            echo: None,
            prompt_values: prompt_values(extras.prompt_logprobs, length, limits),
            grammar: None,
            output,
        })
    }

    /// What the client said, else what generation_config.json says, else the neutral value. More tokens than fit are
    /// cut to what fits.
    pub(crate) fn sampling(
        &self,
        fields: &SamplingFields,
        limits: Limits,
        prompt: usize,
    ) -> Result<SamplingParams, ApiError> {
        let temperature = fields
            .temperature
            .or(self.defaults.temperature)
            .unwrap_or(1.0);
        let greedy = temperature < GREEDY_BELOW;
        let mut stop_token_ids = fields.stop_token_ids.clone();
        if !fields.ignore_eos {
            let exists = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < limits.vocab_size);
            stop_token_ids.extend(self.defaults.eos.iter().copied().filter(exists));
        }
        stop_token_ids.sort_unstable();
        stop_token_ids.dedup();
        let room = limits.max_model_len.saturating_sub(prompt) as u64;
        let wanted = fields
            .max_tokens
            .map(|tokens| tokens as u64)
            .or(self.defaults.max_tokens);
        let top_k = fields
            .top_k
            .map(u64::from)
            .or(self.defaults.top_k)
            .unwrap_or(0);
        let max_tokens = wanted.map_or(room, |wanted| wanted.min(room));
        let judge = Judge {
            tokenizer: &self.tokenizer,
            defaults: &self.defaults,
            limits,
            max_logprobs: self.max_logprobs,
        };
        let extras = judge.extras(&fields.extras, greedy, max_tokens, prompt)?;
        Ok(SamplingParams {
            seed: fields
                .seed
                .map_or_else(|| self.seeds.draw(), i64::cast_unsigned),
            max_tokens,
            temperature: if greedy { 0.0 } else { temperature },
            top_p: if greedy {
                1.0
            } else {
                fields.top_p.or(self.defaults.top_p).unwrap_or(1.0)
            },
            top_k: if greedy { 0 } else { top_k },
            stop_token_ids,
            extras,
        })
    }
}

pub(crate) fn far_too_long(least: usize, limits: Limits, param: &str) -> Result<(), ApiError> {
    if least >= limits.max_model_len {
        return Err(ApiError::far_too_long(param, least, limits.max_model_len));
    }
    Ok(())
}

pub(crate) fn unusable(param: &str, error: &TokenizerError) -> ApiError {
    ApiError::invalid(param, format!("'{param}' cannot be used: {error}."))
}
