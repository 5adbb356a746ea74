//! `POST /v1/completions`.

use serde_json::{Map, Value};

use crate::body::Body;
use crate::chat::stream;
use crate::error::ApiError;
use crate::field;
use crate::sampling::{SamplingFields, token_id};
use crate::scheduling::SchedulingFields;
use crate::structured::StructuredFields;
use crate::unsupported::{self, Route};

/// Output tokens where the client names no number, as in OpenAI's API.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most prompts of a request that may hold several, as in vLLM.
const MAX_PROMPTS: usize = 1024;

/// What to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text, to be tokenized. May be empty: the tokenizer may bring a token of its own.
    Text(String),
    /// Token ids, at least one.
    Tokens(Vec<i32>),
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
    /// Whether the answer carries the token ids of prompt and output.
    pub return_token_ids: bool,
    /// Whoever the client says is behind it; for logs.
    pub user: Option<String>,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

impl CompletionRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        unsupported::refuse(Route::Completion, &fields)?;
        let prompt = prompt(&mut fields)?;
        let echo = field::boolean(&mut fields, "echo")?.unwrap_or(false);
        let only_prompt = echo && fields.get("max_tokens").is_some_and(|given| given == 0);
        if only_prompt {
            fields.insert("max_tokens".to_owned(), Value::from(1));
        }
        let mut sampling = SamplingFields::take(&mut fields, &["max_tokens"])?;
        sampling.max_tokens = sampling.max_tokens.or(Some(DEFAULT_MAX_TOKENS));
        sampling.extras.take_completion_logprobs(&mut fields)?;
        let (stream, include_usage) = stream(&mut fields)?;
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
            include_usage,
            return_token_ids: field::boolean(&mut fields, "return_token_ids")?.unwrap_or(false),
            user: field::string(&mut fields, "user")?,
            ignored: unsupported::unknown(Route::Completion, fields),
        })
    }
}

impl CompletionRequest {
    /// Checks a body whose `prompt` may be a list of prompts. Returns one request for each, in order.
    ///
    /// # Errors
    /// As [`Self::from_body`]; more prompts than a request may hold.
    pub fn batch(mut body: Body) -> Result<Vec<Self>, ApiError> {
        let several = |items: &Vec<Value>| {
            items.len() > 1 && matches!(items[0], Value::String(_) | Value::Array(_))
        };
        let mut rest = match body.fields.get_mut("prompt") {
            Some(Value::Array(items)) if several(items) => items.split_off(1),
            _ => Vec::new(),
        };
        if rest.len() >= MAX_PROMPTS {
            let message = format!(
                "'prompt' may hold {MAX_PROMPTS} prompts; got {}.",
                rest.len() + 1
            );
            return Err(ApiError::invalid("prompt", message));
        }
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
