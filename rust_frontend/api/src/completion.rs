//! `POST /v1/completions`.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::body::Body;
use crate::chat::stream;
use crate::error::ApiError;
use crate::field;
use crate::generate::request_id;
use crate::sampling::{SamplingFields, token_id};
use crate::scheduling::SchedulingFields;
use crate::structured::StructuredFields;
use crate::unsupported::{self, Route};

/// Output tokens where the client names no number, as in OpenAI's API.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most prompts of a request that may hold several, as in vLLM.
const MAX_PROMPTS: usize = 1024;

const EMBEDS: &str = "prompt_embeds";

/// What to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, to be tokenized. May be empty: the tokenizer may bring a token of its own.
    Text(String),
    /// Token ids, at least one.
    Tokens(Vec<i32>),
    /// A file with one vector for each token, in base64, not read yet.
    Embeds(Arc<str>),
}

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The model, where one is named.
    pub model: Option<String>,
    /// What to continue.
    pub prompt: Prompt,
    /// Whether the text begins with the prompt.
    pub echo: bool,
    /// Whether only the prompt was asked for: `echo` with a `max_tokens` of 0.
    pub only_prompt: bool,
    /// Whether the tokenizer adds its own special tokens to a text prompt. Default true.
    pub add_special_tokens: bool,
    /// What the output must be.
    pub structured: StructuredFields,
    /// How to sample.
    pub sampling: SamplingFields,
    /// When to serve it, and beside whom.
    pub scheduling: SchedulingFields,
    /// Whether to answer as a stream of events.
    pub stream: bool,
    /// Whether the stream's last chunk carries the usage.
    pub include_usage: bool,
    /// Whether every chunk carries the usage so far.
    pub continuous_usage: bool,
    /// Whether the answer carries the token ids of prompt and output.
    pub return_token_ids: bool,
    /// Whoever the client says is behind it; for logs.
    pub user: Option<String>,
    /// What the client calls the request; names the answer, behind a prefix.
    pub request_id: Option<String>,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl CompletionRequest {
    /// Checks a body with one `prompt`.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        unsupported::refuse(Route::Completion, &fields)?;
        if field::take(&mut fields, EMBEDS).is_some() {
            let message = format!("'{EMBEDS}' is not taken here: send 'prompt'.");
            return Err(ApiError::unsupported(EMBEDS, message));
        }
        let prompt = prompt(&mut fields)?;
        Self::continuing(prompt, fields)
    }

    /// Checks all fields but those of the prompt.
    fn continuing(prompt: Prompt, mut fields: Map<String, Value>) -> Result<Self, ApiError> {
        let echo = field::boolean(&mut fields, "echo")?.unwrap_or(false);
        let only_prompt = echo && fields.get("max_tokens").is_some_and(|given| given == 0);
        if only_prompt {
            fields.insert("max_tokens".to_owned(), Value::from(1));
        }
        let mut sampling = SamplingFields::take(&mut fields, &["max_tokens"])?;
        sampling.max_tokens = sampling.max_tokens.or(Some(DEFAULT_MAX_TOKENS));
        sampling.extras.take_completion_logprobs(&mut fields)?;
        sampling.extras.take_truncation(&mut fields)?;
        let (stream, options) = stream(&mut fields)?;
        sampling.extras.check_stream(stream)?;
        Ok(Self {
            model: field::string(&mut fields, "model")?,
            prompt,
            echo,
            only_prompt,
            add_special_tokens: field::boolean(&mut fields, "add_special_tokens")?.unwrap_or(true),
            structured: StructuredFields::take(&mut fields)?,
            sampling,
            scheduling: SchedulingFields::take(&mut fields)?,
            stream,
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            return_token_ids: field::boolean(&mut fields, "return_token_ids")?.unwrap_or(false),
            user: field::string(&mut fields, "user")?,
            request_id: request_id(&mut fields)?,
            ignored: unsupported::unknown(Route::Completion, fields),
        })
    }
}

impl CompletionRequest {
    /// Checks a body whose `prompt` may be a list of prompts, and which may have `prompt_embeds`, one or a list. Returns
    /// one request for each, in order, those of vectors first.
    ///
    /// # Errors
    /// As [`Self::from_body`]; more prompts than a request may hold; vectors with what needs their text.
    pub fn batch(mut body: Body) -> Result<Vec<Self>, ApiError> {
        let Some(given) = embeds(&mut body.fields)? else {
            return Self::of_prompts(body);
        };
        let named = match body.fields.get("prompt") {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(), // clients that must send one send an empty one
            Some(Value::Array(items)) => !items.is_empty(),
            Some(_) => true,
        };
        let (first, others) = if named {
            let others = Self::of_prompts(body)?;
            (others[0].clone(), others)
        } else {
            body.fields.remove("prompt");
            unsupported::refuse(Route::Completion, &body.fields)?;
            let first = Self::continuing(given[0].clone(), body.fields)?;
            (first, Vec::new())
        };
        first.needs_no_text()?;
        few_enough(EMBEDS, given.len() + others.len())?;
        let mut requests: Vec<Self> = given
            .into_iter()
            .map(|prompt| Self {
                prompt,
                ..first.clone()
            })
            .collect();
        requests.extend(others);
        Ok(requests)
    }

    /// Refuses what would show a prompt that has no text.
    fn needs_no_text(&self) -> Result<(), ApiError> {
        let asked = [
            (self.echo, "echo"),
            (
                self.sampling.extras.prompt_logprobs.is_some(),
                "prompt_logprobs",
            ),
        ];
        match asked.iter().find(|(asked, _)| *asked) {
            None => Ok(()),
            Some((_, name)) => {
                let message = format!(
                    "'{name}' cannot be combined with '{EMBEDS}', which has no tokens to show. Leave one out."
                );
                Err(ApiError::invalid(*name, message))
            }
        }
    }

    /// Checks a body whose `prompt` may be a list of prompts.
    fn of_prompts(mut body: Body) -> Result<Vec<Self>, ApiError> {
        let several = |items: &Vec<Value>| {
            items.len() > 1 && matches!(items[0], Value::String(_) | Value::Array(_))
        };
        let mut rest = match body.fields.get_mut("prompt") {
            Some(Value::Array(items)) if several(items) => items.split_off(1),
            _ => Vec::new(),
        };
        few_enough("prompt", rest.len() + 1)?;
        let first = Self::from_body(body)?;
        let mut requests = Vec::with_capacity(rest.len() + 1);
        for (index, item) in rest.drain(..).enumerate() {
            let mut fields = Map::new();
            fields.insert("prompt".to_owned(), item);
            requests.push(Self {
                prompt: prompt(&mut fields).map_err(|error| error.entry("prompt", index + 1))?,
                ..first.clone()
            });
        }
        requests.insert(0, first);
        Ok(requests)
    }
}

fn few_enough(name: &str, prompts: usize) -> Result<(), ApiError> {
    if prompts <= MAX_PROMPTS {
        return Ok(());
    }
    let message = format!("'{name}' may hold {MAX_PROMPTS} prompts; got {prompts}.");
    Err(ApiError::invalid(name, message))
}

/// Takes `prompt_embeds`, at least one, where it is given.
fn embeds(fields: &mut Map<String, Value>) -> Result<Option<Vec<Prompt>>, ApiError> {
    let wanted = "a file in base64, or a list of such files";
    let items = match field::take(fields, EMBEDS) {
        None => return Ok(None),
        Some(Value::Array(items)) => items,
        Some(one) => vec![one],
    };
    if items.is_empty() {
        let message = format!("'{EMBEDS}' is an empty list; send {wanted}.");
        return Err(ApiError::invalid(EMBEDS, message));
    }
    let read = |item: Value| match item {
        Value::String(text) => Ok(Prompt::Embeds(text.into())),
        other => Err(field::wrong(EMBEDS, wanted, &other)),
    };
    items
        .into_iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map(Some)
}

fn prompt(fields: &mut Map<String, Value>) -> Result<Prompt, ApiError> {
    let wanted = "a string or a list of token ids";
    match field::take(fields, "prompt").ok_or_else(|| ApiError::missing("prompt"))? {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(items) => listed(items),
        other => Err(field::wrong("prompt", wanted, &other)),
    }
}

/// A list is one prompt of token ids, or a batch, of which octavo takes those that hold one prompt.
fn listed(mut items: Vec<Value>) -> Result<Prompt, ApiError> {
    let batch = matches!(items.first(), Some(Value::String(_) | Value::Array(_)));
    if batch && items.len() > 1 {
        let message = format!(
            "'prompt' holds {} prompts. Batches are not supported: send one request for each.",
            items.len()
        );
        return Err(ApiError::unsupported("prompt", message));
    }
    if batch {
        return match items.swap_remove(0) {
            Value::String(text) => Ok(Prompt::Text(text)),
            Value::Array(ids) => tokens(&ids),
            other => Err(field::wrong(
                "prompt",
                "a string or a list of token ids",
                &other,
            )),
        };
    }
    tokens(&items)
}

fn tokens(items: &[Value]) -> Result<Prompt, ApiError> {
    if items.is_empty() {
        return Err(ApiError::invalid(
            "prompt",
            "'prompt' must hold at least one token; got an empty list.",
        ));
    }
    Ok(Prompt::Tokens(
        items
            .iter()
            .map(|item| token_id(item, "prompt"))
            .collect::<Result<_, _>>()?,
    ))
}
