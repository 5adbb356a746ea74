//! The derender routes: what `/inference/v1/generate` answered, to what the OpenAI routes would have answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::Body;
use crate::error::ApiError;
use crate::field::{self, wrong};
use crate::generate::request_id;
use crate::response::{FinishReason, StopReason, Usage};
use crate::sampling::token_id;

/// Most choices of one answer.
const MAX_CHOICES: usize = 1024;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct DerenderRequest {
    /// The model, where one is named.
    pub model: Option<String>,
    /// The request that was rendered; its stop strings, tools and other fields shape the answer.
    pub request: Option<Body>,
    /// What the engine answered.
    pub input: DerenderInput,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

/// Whole answers, or one event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum DerenderInput {
    /// At least one; chats have exactly one.
    Whole(Vec<(Generated, PromptHint)>),
    /// One event.
    Chunk {
        /// The event.
        generated: Generated,
        /// What the caller knows of the prompt.
        prompt: PromptHint,
        /// What the event before it gave back; `None` for the first.
        state: Option<StreamState>,
    },
}

/// What the caller knows of the prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PromptHint {
    /// Its length, for the usage.
    pub tokens: Option<usize>,
    /// Its ids, or the last of them: what the output continues.
    pub ids: Vec<i32>,
}

/// An answer of `/inference/v1/generate`, or an event of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Generated {
    /// The name of the request.
    pub request_id: Option<String>,
    /// Unix seconds.
    pub created: Option<u64>,
    /// Outputs.
    pub choices: Vec<GeneratedChoice>,
    /// Tokens counted by the engine.
    pub usage: Option<Usage>,
}

/// One output, or what it gained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GeneratedChoice {
    /// From 0.
    pub index: u32,
    /// Token ids.
    pub token_ids: Vec<i32>,
    /// Why it ended; `None` while it runs.
    pub finish_reason: Option<FinishReason>,
    /// What ended it, where the engine says so.
    pub stop_reason: Option<StopReason>,
}

/// What a stream's caller carries from event to event: the server keeps nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// Of all events.
    pub id: String,
    /// Of all events, in Unix seconds.
    pub created: u64,
    /// One for each output that has begun, in the order of their indices.
    pub choices: Vec<ChoiceState>,
}

/// The answer to an event of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Derendered<T> {
    /// The event as the OpenAI route would have written it.
    pub chunk: T,
    /// For the next event.
    pub stream_state: StreamState,
}

/// Of one output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChoiceState {
    /// From 0.
    pub index: u32,
    /// All ids so far.
    pub token_ids: Vec<i32>,
    /// Whether its last event was given: nothing more may come of it.
    #[serde(default)]
    pub ended: bool,
}

impl DerenderRequest {
    /// Checks the body of `/v1/chat/completions/derender`.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn chat(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        let request = object(&mut fields, "chat_request")?;
        Self::read(fields, request, false)
    }

    /// Checks the body of `/v1/completions/derender`.
    ///
    /// # Errors
    /// 400 that names the field.
    pub fn completion(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        let request = object(&mut fields, "completion_request")?;
        Self::read(fields, request, true)
    }

    fn read(
        mut fields: Map<String, Value>,
        request: Option<Body>,
        several: bool,
    ) -> Result<Self, ApiError> {
        let stream = field::boolean(&mut fields, "stream")?.unwrap_or(false);
        let input = if stream {
            chunk(&mut fields)?
        } else if several {
            wholes(&mut fields)?
        } else {
            let generated = generated(&mut fields, "generate_response")?;
            DerenderInput::Whole(vec![(generated, hint(&mut fields)?)])
        };
        Ok(Self {
            model: field::string(&mut fields, "model")?,
            request,
            input,
            ignored: Body::from(fields).names_left(),
        })
    }
}

fn object(fields: &mut Map<String, Value>, name: &str) -> Result<Option<Body>, ApiError> {
    Ok(field::object(fields, name)?.map(Body::from))
}

fn chunk(fields: &mut Map<String, Value>) -> Result<DerenderInput, ApiError> {
    let state = match field::take(fields, "stream_state") {
        None => None,
        Some(value) => Some(StreamState::deserialize(value).map_err(|error| {
            let message = format!(
                "'stream_state' must be what the event before this one gave back, or null for the first: {error}."
            );
            ApiError::invalid("stream_state", message)
        })?),
    };
    Ok(DerenderInput::Chunk {
        generated: generated(fields, "generate_chunk")?,
        prompt: hint(fields)?,
        state,
    })
}

/// Answers to a list of prompts, each with what is known of its prompt.
fn wholes(fields: &mut Map<String, Value>) -> Result<DerenderInput, ApiError> {
    let name = "generate_responses";
    let items = field::list(fields, name)?.ok_or_else(|| ApiError::missing(name))?;
    if items.is_empty() {
        let message = format!("'{name}' must hold at least one answer; got an empty list.");
        return Err(ApiError::invalid(name, message));
    }
    let count = items.len();
    let mut tokens = parallel(fields, "prompt_tokens", count)?.into_iter();
    let mut ids = parallel(fields, "prompt_token_ids", count)?.into_iter();
    let mut answers = Vec::with_capacity(count);
    for (index, item) in items.into_iter().enumerate() {
        let mut one = Map::new();
        one.insert(
            "prompt_tokens".to_owned(),
            tokens.next().unwrap_or_default(),
        );
        one.insert(
            "prompt_token_ids".to_owned(),
            ids.next().unwrap_or_default(),
        );
        let path = format!("{name}.{index}");
        answers.push((read_generated(item, &path)?, hint(&mut one)?));
    }
    Ok(DerenderInput::Whole(answers))
}

/// A list that has one value for each answer, or none at all.
fn parallel(
    fields: &mut Map<String, Value>,
    name: &str,
    count: usize,
) -> Result<Vec<Value>, ApiError> {
    let items = field::list(fields, name)?.unwrap_or_default();
    if items.is_empty() || items.len() == count {
        return Ok(items);
    }
    let message = format!(
        "'{name}' must have one value for each of the {count} answers; got {}.",
        items.len()
    );
    Err(ApiError::invalid(name, message))
}

fn hint(fields: &mut Map<String, Value>) -> Result<PromptHint, ApiError> {
    let tokens = field::integer(fields, "prompt_tokens", 0, "an integer of at least 0")?;
    Ok(PromptHint {
        tokens: tokens.and_then(|tokens| usize::try_from(tokens).ok()),
        ids: ids(fields, "prompt_token_ids", "prompt_token_ids")?,
    })
}

fn generated(fields: &mut Map<String, Value>, name: &str) -> Result<Generated, ApiError> {
    let value = field::take(fields, name).ok_or_else(|| ApiError::missing(name))?;
    read_generated(value, name)
}

fn read_generated(value: Value, path: &str) -> Result<Generated, ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(wrong(path, "an answer of /inference/v1/generate", &value));
    };
    let within = |error: ApiError| error.within(path);
    let mode = field::string(&mut fields, "output_mode").map_err(within)?;
    if let Some(mode) = mode.filter(|mode| mode != "tokens") {
        let message = format!(
            "'{path}.output_mode' must be \"tokens\"; got \"{mode}\", which is text already."
        );
        return Err(ApiError::invalid(format!("{path}.output_mode"), message));
    }
    let choices = field::list(&mut fields, "choices")
        .map_err(within)?
        .ok_or_else(|| ApiError::missing(&format!("{path}.choices")))?;
    if choices.len() > MAX_CHOICES {
        let message = format!(
            "'{path}.choices' may hold {MAX_CHOICES} outputs; got {}.",
            choices.len()
        );
        return Err(ApiError::invalid(format!("{path}.choices"), message));
    }
    let choices = choices.into_iter().enumerate();
    let choices: Vec<GeneratedChoice> = choices
        .map(|(index, choice)| read_choice(choice, &format!("{path}.choices.{index}")))
        .collect::<Result<_, _>>()?;
    Ok(Generated {
        request_id: request_id(&mut fields).map_err(within)?,
        created: field::integer(&mut fields, "created", 0, "Unix seconds")
            .map_err(within)?
            .and_then(|created| u64::try_from(created).ok()),
        choices,
        usage: usage(&mut fields).map_err(within)?,
    })
}

fn read_choice(value: Value, path: &str) -> Result<GeneratedChoice, ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(wrong(path, "an object with index and token_ids", &value));
    };
    let within = |error: ApiError| error.within(path);
    let range = "an integer from 0 to 1023";
    let index = field::integer(&mut fields, "index", 0, range).map_err(within)?;
    let index = u32::try_from(index.unwrap_or(0)).unwrap_or(u32::MAX);
    if index as usize >= MAX_CHOICES {
        let path = format!("{path}.index");
        return Err(wrong(&path, range, &index.into()));
    }
    Ok(GeneratedChoice {
        index,
        token_ids: ids(&mut fields, "token_ids", &format!("{path}.token_ids"))?,
        finish_reason: finish_reason(&mut fields).map_err(within)?,
        stop_reason: stop_reason(&mut fields).map_err(within)?,
    })
}

/// Takes token ids; absent and null are none.
fn ids(fields: &mut Map<String, Value>, name: &str, path: &str) -> Result<Vec<i32>, ApiError> {
    let items = field::list(fields, name).map_err(|error| error.on(path))?;
    let items = items.unwrap_or_default();
    items.iter().map(|item| token_id(item, path)).collect()
}

/// Engines have more reasons than OpenAI's API; those that are no error are ends by themselves.
fn finish_reason(fields: &mut Map<String, Value>) -> Result<Option<FinishReason>, ApiError> {
    let reason = field::string(fields, "finish_reason")?;
    Ok(reason.map(|reason| match reason.as_str() {
        "length" => FinishReason::Length,
        "abort" => FinishReason::Abort,
        "error" => FinishReason::Error,
        _ => FinishReason::Stop,
    }))
}

fn stop_reason(fields: &mut Map<String, Value>) -> Result<Option<StopReason>, ApiError> {
    match field::take(fields, "stop_reason") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(StopReason::Text(text))),
        Some(value) => token_id(&value, "stop_reason").map(|id| Some(StopReason::Token(id))),
    }
}

fn usage(fields: &mut Map<String, Value>) -> Result<Option<Usage>, ApiError> {
    let Some(mut usage) = field::object(fields, "usage")? else {
        return Ok(None);
    };
    let mut count = |name: &str| {
        let count = field::integer(&mut usage, name, 0, "an integer of at least 0")
            .map_err(|error| error.within("usage"))?;
        Ok::<_, ApiError>(usize::try_from(count.unwrap_or(0)).unwrap_or(0))
    };
    let (prompt, completion) = (count("prompt_tokens")?, count("completion_tokens")?);
    let details = field::object(&mut usage, "prompt_tokens_details")
        .map_err(|error| error.within("usage"))?;
    let cached = details
        .and_then(|details| details.get("cached_tokens")?.as_u64())
        .and_then(|cached| usize::try_from(cached).ok());
    Ok(Some(Usage::new(prompt, completion, cached)))
}
