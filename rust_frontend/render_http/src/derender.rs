//! Answers of `/inference/v1/generate` to those of the OpenAI routes.
//!
//! A stream is derendered event by event, and its state travels with the caller. The state is the output's token ids: they
//! are gone through again for each event, which gives the same text however they were cut.

use std::borrow::Cow;

use octavo_api::{
    ApiError, AssistantMessage, Body, ChatChoice, ChatChunk, ChatChunkChoice, ChatCompletion,
    ChatRequest, ChoiceState, Completion, CompletionChoice, CompletionRequest, DerenderInput,
    DerenderRequest, Derendered, FinishReason, Generated, GeneratedChoice, PromptHint,
    ReasoningFields, SamplingFields, StreamState, Usage, served_name,
};
use octavo_render::{Ended, OutputPlan, Update};

use crate::events;
use crate::service::{Answer, Asked, TextService, json};

pub(crate) fn chat(
    service: &TextService,
    body: Body,
    model: String,
    asked: &Asked,
) -> Result<Answer, ApiError> {
    let request = DerenderRequest::chat(body)?;
    let model = name(service, &request, model)?;
    let mut ignored = request.ignored;
    let chat = request.request.map(ChatRequest::from_body).transpose();
    let chat = chat.map_err(|error| error.within("chat_request"))?;
    let inner = chat.iter().flat_map(|chat| &chat.ignored);
    ignored.extend(inner.map(|name| format!("chat_request.{name}")));
    if chat.as_ref().is_some_and(|chat| chat.echo.is_some()) {
        let message = "'chat_request.echo' is not supported here: put the last message's text in front of the answer yourself.";
        return Err(ApiError::unsupported("chat_request.echo", message));
    }
    let job = Job {
        service,
        model,
        asked,
        prefix: "chatcmpl",
        rendered: chat.map_or(Rendered::Nothing, |chat| Rendered::Chat(Box::new(chat))),
    };
    match request.input {
        DerenderInput::Whole(mut answers) => {
            let (generated, prompt) = answers.pop().unwrap_or_default();
            json(&job.chat(&generated, &prompt)?, ignored)
        }
        DerenderInput::Chunk {
            generated,
            prompt,
            state,
        } => {
            let reasoning = job.reasoning();
            let make = |head, gained, usage| chat_chunk(head, gained, usage, reasoning);
            json(&job.chunk(&generated, &prompt, state, make)?, ignored)
        }
    }
}

pub(crate) fn completion(
    service: &TextService,
    body: Body,
    model: String,
    asked: &Asked,
) -> Result<Answer, ApiError> {
    let request = DerenderRequest::completion(body)?;
    let model = name(service, &request, model)?;
    let mut ignored = request.ignored;
    let completion = request.request.map(CompletionRequest::batch).transpose();
    let completion = completion.map_err(|error| error.within("completion_request"))?;
    let first = completion.and_then(|requests| requests.into_iter().next());
    let inner = first.iter().flat_map(|request| &request.ignored);
    ignored.extend(inner.map(|name| format!("completion_request.{name}")));
    let job = Job {
        service,
        model,
        asked,
        prefix: "cmpl",
        rendered: first.map_or(Rendered::Nothing, |request| {
            Rendered::Completion(Box::new(request.sampling))
        }),
    };
    match request.input {
        DerenderInput::Whole(answers) => json(&job.completion(&answers)?, ignored),
        DerenderInput::Chunk {
            generated,
            prompt,
            state,
        } => {
            let chunk = job.chunk(&generated, &prompt, state, completion_chunk)?;
            json(&chunk, ignored)
        }
    }
}

/// The name of the answer: the one asked for, else that of the request that was rendered, else the main one.
fn name(
    service: &TextService,
    request: &DerenderRequest,
    model: String,
) -> Result<String, ApiError> {
    match (&request.model, &request.request) {
        (None, Some(rendered)) => match rendered.model()? {
            Some(inner) => served_name(service.model_names(), Some(inner)),
            None => Ok(model),
        },
        _ => Ok(model),
    }
}

/// What all answers of one request share.
struct Job<'a> {
    service: &'a TextService,
    model: String,
    asked: &'a Asked,
    prefix: &'static str,
    rendered: Rendered,
}

/// The request that was rendered, where the caller says so.
enum Rendered {
    Nothing,
    Chat(Box<ChatRequest>),
    Completion(Box<SamplingFields>),
}

/// The head of an answer.
struct Head {
    id: String,
    created: u64,
    model: String,
}

/// What an output gained in an event.
struct Gained {
    index: u32,
    first: bool,
    update: Update,
}

impl Job<'_> {
    fn chat(&self, generated: &Generated, prompt: &PromptHint) -> Result<ChatCompletion, ApiError> {
        let plan = self.plan(prompt)?;
        let (mut choices, mut tokens, mut thoughts) = (Vec::new(), 0, None);
        for choice in &generated.choices {
            let (update, ended) = self.whole(&plan, choice, generated)?;
            tokens += ended.completion_tokens;
            thoughts = ended
                .reasoning_tokens
                .map(|count| thoughts.unwrap_or(0) + count);
            let message = if update.events.is_empty() {
                AssistantMessage::text(update.text)
            } else {
                events::message(update.events.iter().collect(), self.reasoning())
            };
            choices.push(ChatChoice {
                index: choice.index,
                message,
                logprobs: None,
                finish_reason: Some(ended.reason),
                stop_reason: ended.stop_reason,
                token_ids: None,
            });
        }
        let head = self.head(generated);
        Ok(ChatCompletion {
            id: head.id,
            object: Cow::Borrowed(ChatCompletion::OBJECT),
            created: head.created,
            model: head.model,
            choices,
            usage: usage(generated, prompt, tokens).with_reasoning(thoughts),
            prompt_token_ids: None,
            prompt_logprobs: None,
            metrics: None,
            weight_versions: None,
        })
    }

    /// Joins the answers to all prompts; choices are numbered through.
    fn completion(&self, answers: &[(Generated, PromptHint)]) -> Result<Completion, ApiError> {
        let mut choices = Vec::new();
        let (mut prompts, mut tokens) = (0, 0);
        let (mut cached, mut created) = (None, None);
        for (generated, prompt) in answers {
            let plan = self.plan(prompt)?;
            let mut own = 0;
            for choice in &generated.choices {
                let (update, ended) = self.whole(&plan, choice, generated)?;
                own += ended.completion_tokens;
                choices.push(CompletionChoice {
                    index: u32::try_from(choices.len()).unwrap_or(u32::MAX),
                    text: update.text,
                    logprobs: None,
                    finish_reason: Some(ended.reason),
                    stop_reason: ended.stop_reason,
                    prompt_token_ids: None,
                    token_ids: None,
                    prompt_logprobs: None,
                });
            }
            let usage = usage(generated, prompt, own);
            prompts += usage.prompt_tokens;
            tokens += usage.completion_tokens;
            if let Some(details) = usage.prompt_tokens_details {
                cached = Some(cached.unwrap_or(0) + details.cached_tokens);
                let more = details.created_cache_tokens;
                created = more.map(|more| created.unwrap_or(0) + more).or(created);
            }
        }
        let head = answers.first().map(|(generated, _)| self.head(generated));
        let head = head.unwrap_or_else(|| self.head(&Generated::default()));
        Ok(Completion {
            id: head.id,
            object: Cow::Borrowed(Completion::OBJECT),
            created: head.created,
            model: head.model,
            choices,
            usage: Some(Usage::new(prompts, tokens, cached).with_created(created)),
            metrics: None,
            weight_versions: None,
        })
    }

    fn chunk<T>(
        &self,
        generated: &Generated,
        prompt: &PromptHint,
        state: Option<StreamState>,
        make: impl FnOnce(Head, Vec<Gained>, Option<Usage>) -> T,
    ) -> Result<Derendered<T>, ApiError> {
        let plan = self.plan(prompt)?;
        let mut state = state.unwrap_or_else(|| StreamState {
            id: self.id(generated),
            created: generated.created.unwrap_or(self.asked.now),
            choices: Vec::new(),
        });
        let mut gained = Vec::new();
        for choice in &generated.choices {
            gained.extend(self.advance(&plan, choice, &mut state)?);
        }
        let head = Head {
            id: state.id.clone(),
            created: state.created,
            model: self.model.clone(),
        };
        let usage = generated
            .usage
            .as_ref()
            .map(|told| usage(generated, prompt, told.completion_tokens));
        Ok(Derendered {
            chunk: make(head, gained, usage),
            stream_state: state,
        })
    }

    /// Moves one output on; `None` where it ended before.
    fn advance(
        &self,
        plan: &OutputPlan,
        choice: &GeneratedChoice,
        state: &mut StreamState,
    ) -> Result<Option<Gained>, ApiError> {
        let at = state
            .choices
            .iter()
            .position(|known| known.index == choice.index);
        let first = at.is_none();
        let at = at.unwrap_or_else(|| {
            state.choices.push(ChoiceState {
                index: choice.index,
                ..ChoiceState::default()
            });
            state.choices.len() - 1
        });
        let seed = seed(&state.id, choice.index);
        let known = &mut state.choices[at];
        if known.ended {
            return Ok(None);
        }
        self.check(&known.token_ids, "stream_state")?;
        self.check(&choice.token_ids, "generate_chunk")?;
        let longest = self.service.limits().max_model_len;
        if known.token_ids.len() + choice.token_ids.len() > longest {
            let message =
                format!("The output has more than {longest} tokens, this model's context.");
            return Err(ApiError::invalid("stream_state", message));
        }
        let mut text = self.service.renderer.output_again(plan, seed);
        if text.advance(&known.token_ids, None).end.is_some() {
            let message = "'stream_state' is not what the event before this one gave back: its output has ended.";
            return Err(ApiError::invalid("stream_state", message));
        }
        let finish = choice
            .finish_reason
            .map(|reason| plan.finish(reason, choice.token_ids.last().or(known.token_ids.last())));
        let update = text.advance(&choice.token_ids, finish.as_ref());
        known.token_ids.extend_from_slice(&choice.token_ids);
        known.ended = update.end.is_some();
        if known.ended {
            known.token_ids = Vec::new();
        }
        Ok(Some(Gained {
            index: choice.index,
            first,
            update,
        }))
    }

    /// The whole text of an output, and its end.
    fn whole(
        &self,
        plan: &OutputPlan,
        choice: &GeneratedChoice,
        generated: &Generated,
    ) -> Result<(Update, Ended), ApiError> {
        self.check(&choice.token_ids, "token_ids")?;
        let reason = choice.finish_reason.unwrap_or(FinishReason::Stop);
        let finish = plan.finish(reason, choice.token_ids.last());
        let seed = seed(&self.id(generated), choice.index);
        let mut text = self.service.renderer.output_again(plan, seed);
        let mut update = text.advance(&choice.token_ids, Some(&finish));
        let ended = update
            .end
            .take()
            .ok_or_else(|| ApiError::internal("An output that was finished did not end."))?;
        Ok((update, ended))
    }

    fn plan(&self, prompt: &PromptHint) -> Result<OutputPlan, ApiError> {
        let (renderer, limits) = (&self.service.renderer, self.service.limits());
        match &self.rendered {
            Rendered::Nothing => renderer.output_plan(None, &prompt.ids, limits),
            Rendered::Chat(chat) => {
                renderer
                    .chat_plan(chat, &prompt.ids, limits)
                    .map_err(|error| match error.param.as_deref() {
                        Some("prompt_token_ids") => error,
                        _ => error.within("chat_request"),
                    })
            }
            Rendered::Completion(sampling) => {
                renderer.output_plan(Some(sampling.as_ref()), &prompt.ids, limits)
            }
        }
    }

    fn reasoning(&self) -> ReasoningFields {
        match &self.rendered {
            Rendered::Chat(chat) => chat.reasoning,
            _ => ReasoningFields::default(),
        }
    }

    fn check(&self, ids: &[i32], param: &str) -> Result<(), ApiError> {
        let limits = self.service.limits();
        self.service
            .renderer
            .known_ids(ids, param, limits)
            .map(drop)
    }

    fn head(&self, generated: &Generated) -> Head {
        Head {
            id: self.id(generated),
            created: generated.created.unwrap_or(self.asked.now),
            model: self.model.clone(),
        }
    }

    /// Of the answer: the engine's name of the request with the API's prefix.
    fn id(&self, generated: &Generated) -> String {
        match &generated.request_id {
            Some(id) if id.starts_with(self.prefix) => id.clone(),
            Some(id) => format!("{}-{id}", self.prefix),
            None => format!("{}-{}", self.prefix, self.asked.id),
        }
    }
}

/// A seed for the ids of calls: the same for all events of an output (64-bit FNV-1a).
fn seed(id: &str, index: u32) -> u64 {
    let bytes = id.bytes().chain(index.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Tokens counted: of the prompt as the caller says, else as the engine says.
fn usage(generated: &Generated, prompt: &PromptHint, completion: usize) -> Usage {
    let told = generated.usage.as_ref();
    let given = (!prompt.ids.is_empty()).then_some(prompt.ids.len());
    let prompts = prompt
        .tokens
        .or(told.map(|usage| usage.prompt_tokens))
        .or(given)
        .unwrap_or(0);
    let details = told.and_then(|usage| usage.prompt_tokens_details.as_ref());
    let cached = details.map(|details| details.cached_tokens);
    let created = details.and_then(|details| details.created_cache_tokens);
    Usage::new(prompts, completion, cached).with_created(created)
}

fn chat_chunk(
    head: Head,
    gained: Vec<Gained>,
    usage: Option<Usage>,
    reasoning: ReasoningFields,
) -> ChatChunk {
    let choice = |gained: Gained| {
        let (reason, stop) = end(gained.update.end);
        let mut delta = events::merged(gained.update.events, reasoning);
        let text = gained.update.text;
        if !text.is_empty() {
            delta.content = Some(text);
        }
        if gained.first {
            delta.role = Some(Cow::Borrowed("assistant"));
            delta.content.get_or_insert_default();
        }
        ChatChunkChoice {
            index: gained.index,
            delta,
            logprobs: None,
            finish_reason: reason,
            stop_reason: stop,
            token_ids: None,
        }
    };
    ChatChunk {
        id: head.id,
        object: Cow::Borrowed(ChatChunk::OBJECT),
        created: head.created,
        model: head.model,
        choices: gained.into_iter().map(choice).collect(),
        usage,
        prompt_token_ids: None,
        metrics: None,
        weight_versions: None,
    }
}

fn completion_chunk(head: Head, gained: Vec<Gained>, usage: Option<Usage>) -> Completion {
    let choice = |gained: Gained| {
        let (reason, stop) = end(gained.update.end);
        CompletionChoice {
            index: gained.index,
            text: gained.update.text,
            logprobs: None,
            finish_reason: reason,
            stop_reason: stop,
            prompt_token_ids: None,
            token_ids: None,
            prompt_logprobs: None,
        }
    };
    Completion {
        id: head.id,
        object: Cow::Borrowed(Completion::OBJECT),
        created: head.created,
        model: head.model,
        choices: gained.into_iter().map(choice).collect(),
        usage,
        metrics: None,
        weight_versions: None,
    }
}

fn end(ended: Option<Ended>) -> (Option<FinishReason>, Option<octavo_api::StopReason>) {
    ended.map_or((None, None), |ended| {
        (Some(ended.reason), ended.stop_reason)
    })
}
