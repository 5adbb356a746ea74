//! `POST /inference/v1/generate`: token ids in, token ids out. Its body is what the render routes answer with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::Body;
use crate::chat::stream;
use crate::error::ApiError;
use crate::field;
use crate::logprobs::{ChatLogprobs, PromptLogprobs};
use crate::response::{FinishReason, StopReason, Usage};
use crate::sampling::{SamplingFields, token_id};
use crate::scheduling::SchedulingFields;
use crate::structured::StructuredFields;
use crate::unsupported::{self, Route};

/// Longest id that a client may give a request, in bytes.
const MAX_REQUEST_ID: usize = 128;

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// As the client names the request; the answer carries it.
    pub request_id: Option<String>,
    /// The prompt, at least one id.
    pub token_ids: Vec<i32>,
    /// How to sample.
    pub sampling: SamplingFields,
    /// What the output must be.
    pub structured: StructuredFields,
    /// Whether to answer as a stream of events.
    pub stream: bool,
    /// Whether the stream's last chunk carries the usage.
    pub include_usage: bool,
    /// Whether every chunk carries the usage so far.
    pub continuous_usage: bool,
    /// When it is served, and with whom it shares cached prefixes.
    pub scheduling: SchedulingFields,
    /// Names of fields that nobody knows.
    pub ignored: Vec<String>,
}

/// What render routes tell beside the prompt.
const BESIDE: [&str; 3] = ["token_offsets", "assistant_tokens_mask", "prompt_text"];

impl GenerateRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// 400 that names the field, with what is allowed.
    pub fn from_body(body: Body) -> Result<Self, ApiError> {
        let mut fields = body.fields;
        unsupported::refuse(Route::Generate, &fields)?;
        let token_ids = token_ids(&mut fields, "token_ids")?;
        let sampling = field::object(&mut fields, "sampling_params")?.unwrap_or_default();
        let (stream, options) = stream(&mut fields)?;
        let (sampling, structured, mut ignored) = sampling_params(sampling, stream)?;
        let request_id = request_id(&mut fields)?;
        let scheduling = SchedulingFields::take(&mut fields)?;
        field::string(&mut fields, "model")?;
        for name in BESIDE {
            field::take(&mut fields, name);
        }
        ignored.extend(unsupported::unknown(Route::Generate, fields));
        Ok(Self {
            request_id,
            token_ids,
            sampling,
            structured,
            stream,
            include_usage: options.include_usage,
            continuous_usage: options.continuous_usage_stats,
            scheduling,
            ignored,
        })
    }
}

/// Reads `sampling_params`, whose fields are those of a completion. Returns also the names that nobody knows.
fn sampling_params(
    mut fields: Map<String, Value>,
    stream: bool,
) -> Result<(SamplingFields, StructuredFields, Vec<String>), ApiError> {
    let (sampling, structured) = unsupported::refuse(Route::Completion, &fields)
        .and_then(|()| StructuredFields::take(&mut fields))
        .and_then(|structured| {
            let mut sampling = SamplingFields::take(&mut fields, &["max_tokens"])?;
            sampling.extras.take_completion_logprobs(&mut fields)?;
            sampling.extras.take_truncation(&mut fields)?;
            sampling.extras.check_stream(stream)?;
            Ok((sampling, structured))
        })
        .map_err(|error| error.within("sampling_params"))?;
    let unknown = unsupported::unknown(Route::Completion, fields).into_iter();
    let named = unknown.map(|name| format!("sampling_params.{name}"));
    Ok((sampling, structured, named.collect()))
}

/// Takes a list of at least one token id.
pub(crate) fn token_ids(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<i32>, ApiError> {
    let items = field::list(fields, name)?.ok_or_else(|| ApiError::missing(name))?;
    if items.is_empty() {
        let message = format!("'{name}' must hold at least one token id; got an empty list.");
        return Err(ApiError::invalid(name, message));
    }
    items.iter().map(|item| token_id(item, name)).collect()
}

/// Takes the name that a client gives a request.
pub(crate) fn request_id(fields: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    let given = field::string(fields, "request_id")?;
    given.map(|id| checked_request_id(&id)).transpose()
}

/// Checks the name that a client gives a request.
///
/// # Errors
/// 400 for one that logs and headers cannot hold.
pub fn checked_request_id(id: &str) -> Result<String, ApiError> {
    let sane = (1..=MAX_REQUEST_ID).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    if sane {
        return Ok(id.to_owned());
    }
    let message = format!(
        "'request_id' must be 1 to {MAX_REQUEST_ID} letters, digits or any of `-_.:`; got {}.",
        field::shown(&Value::String(id.to_owned()))
    );
    Err(ApiError::invalid("request_id", message))
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerateResponse {
    /// As the request named it, or a new one.
    pub request_id: String,
    /// The served name.
    pub model: String,
    /// Unix seconds.
    pub created: u64,
    /// One for each output, in order; in events those that gained something.
    pub choices: Vec<GenerateChoice>,
    /// Tokens counted; null in events before the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Of the prompt, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Versions of the weights that made the tokens, oldest first, where a trainer has updated them; in the last event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_versions: Option<Vec<String>>,
}

/// One output, or what it gained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerateChoice {
    /// From 0.
    pub index: u32,
    /// Token ids, the one that ended the output included.
    pub token_ids: Vec<i32>,
    /// Null unless they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Null in a stream until the last.
    pub finish_reason: Option<FinishReason>,
    /// The stop id or stop string of the request that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

/// What a render route answers with: a body for `/inference/v1/generate`, and what was asked for beside it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RenderedRequest {
    /// For the request's answer.
    pub request_id: String,
    /// The prompt.
    pub token_ids: Vec<i32>,
    /// For each id the first character of the prompt's text that it stands for, and the one behind its last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_offsets: Option<Vec<(usize, usize)>>,
    /// For each id 1 where the assistant said it, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_tokens_mask: Option<Vec<u8>>,
    /// The prompt's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_text: Option<String>,
    /// How to sample: what the client said, else what generation_config.json says; what neither says is left out.
    pub sampling_params: Map<String, Value>,
    /// The served name.
    pub model: String,
    /// As the client said it.
    pub stream: bool,
    /// As the client said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Fields that the client set for the engine.
    #[serde(flatten)]
    pub passed: Map<String, Value>,
}

/// `stream_options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamOptions {
    /// Whether the last chunk carries the usage.
    pub include_usage: bool,
    /// Whether every chunk carries the usage so far.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continuous_usage_stats: bool,
}
