//! A request as the fields of a body of HTTP, so that one piece of code judges both.

use octavo_api::{ApiError, Body};
use octavo_http::Kind;
use serde_json::{Map, Value, json};
use tonic::metadata::MetadataMap;

use crate::conversation;
use crate::proto::generate_request::Prompt;
use crate::proto::structured_outputs::Constraint;
use crate::proto::{GenerateRequest, StructuredOutputs};
use crate::sampling;

/// Whose fields a request has, and where its prompt stands.
pub(crate) fn kind_of(prompt: Option<&Prompt>) -> (Kind, &'static str) {
    match prompt {
        Some(Prompt::Text(_)) => (Kind::Completion, "text"),
        Some(Prompt::TokenIds(_)) => (Kind::Completion, "token_ids"),
        Some(Prompt::Conversation(_)) => (Kind::Chat, "conversation"),
        None => (Kind::Completion, "prompt"),
    }
}

/// Fields of a body.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Map<String, Value>);

impl Fields {
    /// Sets a field that has a value.
    pub(crate) fn put(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// Sets a text; one that is empty is left out.
    pub(crate) fn text(&mut self, name: &str, text: String) {
        self.put(name, Some(text).filter(|text| !text.is_empty()));
    }

    /// Sets a list; one that is empty is left out.
    pub(crate) fn list<T: Into<Value>>(&mut self, name: &str, items: Vec<T>) {
        self.put(name, Some(items).filter(|items| !items.is_empty()));
    }

    /// Sets a number, which JSON must be able to hold.
    pub(crate) fn number(&mut self, name: &str, number: Option<f64>) -> Result<(), ApiError> {
        if let Some(number) = number.filter(|number| !number.is_finite()) {
            let message = format!("'{name}' must be a finite number; got {number}.");
            return Err(ApiError::invalid(name, message));
        }
        self.put(name, number);
        Ok(())
    }

    /// Sets what a text of JSON says; one that is empty is left out. `from` is the text's field.
    pub(crate) fn json(&mut self, name: &str, from: &str, text: &str) -> Result<(), ApiError> {
        if !text.is_empty() {
            self.0.insert(name.to_owned(), parsed(from, text)?);
        }
        Ok(())
    }
}

/// Reads a text of JSON.
pub(crate) fn parsed(name: &str, text: &str) -> Result<Value, ApiError> {
    serde_json::from_str(text)
        .map_err(|error| ApiError::invalid(name, format!("'{name}' is no JSON: {error}.")))
}

/// Names the engine core that must serve a call, in its metadata.
const RANK: &str = "x-data-parallel-rank";

/// The data-parallel rank that must serve a call; `None`: any.
///
/// # Errors
/// 400 for metadata that is no rank.
pub(crate) fn rank(metadata: &MetadataMap) -> Result<Option<u32>, ApiError> {
    let Some(value) = metadata.get(RANK) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    text.parse().map(Some).map_err(|_| {
        let message = format!("The metadata '{RANK}' must be an integer from 0 on; got {text:?}.");
        ApiError::invalid(RANK, message)
    })
}

/// Turns a request into the fields of `/v1/chat/completions` or `/v1/completions`.
///
/// # Errors
/// 400 for what has no place there: media, JSON that is none, numbers that are none.
pub(crate) fn fields(request: GenerateRequest, rank: Option<u32>) -> Result<Body, ApiError> {
    if !request.media.is_empty() {
        let message = format!(
            "'media' holds {} items, and this server reads text only: images, videos and sounds are not supported. Leave it out.",
            request.media.len()
        );
        return Err(ApiError::unsupported("media", message));
    }
    let mut fields = Fields::default();
    fields.text("model", request.model);
    let (kind, _) = kind_of(request.prompt.as_ref());
    match request.prompt {
        Some(Prompt::Text(text)) => fields.put("prompt", Some(text)),
        Some(Prompt::TokenIds(ids)) => fields.put("prompt", Some(ids.ids)),
        Some(Prompt::Conversation(conversation)) => conversation::add(&mut fields, conversation)?,
        None => return Err(ApiError::missing("prompt")),
    }
    fields.put("add_special_tokens", request.add_special_tokens);
    sampling::add(
        &mut fields,
        request.sampling_params.unwrap_or_default(),
        kind,
    )?;
    if let Some(structured) = request.structured_outputs {
        fields.put("structured_outputs", Some(structured_outputs(structured)));
    }
    let options = request.output_options.unwrap_or_default();
    let ids = options.token_ids || options.prompt_token_ids;
    fields.put("return_token_ids", ids.then_some(true));
    fields.text("cache_salt", request.cache_salt);
    fields.put(
        "priority",
        Some(request.priority).filter(|priority| *priority != 0),
    );
    fields.text("session_id", request.session_id);
    fields.put("data_parallel_rank", rank.or(request.data_parallel_rank));
    Ok(Body::from(fields.0))
}

fn structured_outputs(given: StructuredOutputs) -> Value {
    let mut fields = Fields::default();
    match given.constraint {
        Some(Constraint::Json(schema)) => fields.put("json", Some(schema)),
        Some(Constraint::Regex(regex)) => fields.put("regex", Some(regex)),
        Some(Constraint::Choice(choice)) => fields.put("choice", Some(choice.texts)),
        Some(Constraint::Grammar(grammar)) => fields.put("grammar", Some(grammar)),
        Some(Constraint::JsonObject(wanted)) => fields.put("json_object", Some(wanted)),
        Some(Constraint::StructuralTag(tag)) => fields.put("structural_tag", Some(tag)),
        None => {}
    }
    fields.put("disable_any_whitespace", given.disable_any_whitespace);
    fields.text("whitespace_pattern", given.whitespace_pattern);
    fields.put(
        "disable_additional_properties",
        given.disable_additional_properties,
    );
    json!(fields.0)
}

/// An error about a field of a body, as one about the field of the message that it was made of; `prompt` is the prompt's.
pub(crate) fn located(error: ApiError, prompt: &str) -> ApiError {
    let Some(param) = error.param.clone() else {
        return error;
    };
    let (first, rest) = param.split_once('.').unwrap_or((&param, ""));
    match first {
        "prompt" => renamed(error, first, prompt, rest),
        "top_logprobs" => renamed(error, first, "sampling_params.logprobs", rest),
        name if sampling::FIELDS.contains(&name) => error.inside("sampling_params"),
        name if conversation::FIELDS.contains(&name) => error.inside("conversation"),
        _ => error,
    }
}

fn renamed(mut error: ApiError, from: &str, to: &str, rest: &str) -> ApiError {
    error.message = error
        .message
        .replace(&format!("'{from}'"), &format!("'{to}'"));
    if rest.is_empty() {
        error.on(to)
    } else {
        error.on(format!("{to}.{rest}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{OutputOptions, SamplingParams, TokenIds};

    fn body_of(request: GenerateRequest) -> Value {
        let mut body = fields(request, None).unwrap();
        let mut all = Map::new();
        while let Some(name) = body.left().map(str::to_owned) {
            all.insert(name.clone(), body.take(&name).unwrap());
        }
        Value::Object(all)
    }

    #[test]
    fn what_is_not_set_is_not_there() {
        let request = GenerateRequest {
            prompt: Some(Prompt::Text(String::new())),
            ..GenerateRequest::default()
        };
        assert_eq!(body_of(request), json!({"prompt": ""}));
    }

    #[test]
    fn fields_have_the_names_of_http() {
        let request = GenerateRequest {
            model: "m".to_owned(),
            prompt: Some(Prompt::TokenIds(TokenIds { ids: vec![1, 2] })),
            sampling_params: Some(SamplingParams {
                n: Some(2),
                temperature: Some(0.5),
                logit_bias: [(3, -1.5)].into(),
                logprobs: Some(4),
                ..SamplingParams::default()
            }),
            output_options: Some(OutputOptions {
                token_ids: true,
                prompt_token_ids: false,
            }),
            cache_salt: "s".to_owned(),
            priority: -1,
            ..GenerateRequest::default()
        };
        let expected = json!({
            "model": "m", "prompt": [1, 2], "n": 2, "temperature": 0.5, "logit_bias": {"3": -1.5}, "logprobs": 4,
            "return_token_ids": true, "cache_salt": "s", "priority": -1,
        });
        assert_eq!(body_of(request), expected);
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let request = GenerateRequest {
            prompt: Some(Prompt::Text("x".to_owned())),
            sampling_params: Some(SamplingParams {
                top_p: Some(f64::NAN),
                ..SamplingParams::default()
            }),
            ..GenerateRequest::default()
        };
        let error = fields(request, None).map(|_| ()).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("top_p"));
        let error = located(error, "text");
        assert_eq!(error.param.as_deref(), Some("sampling_params.top_p"));
        assert!(error.message.contains("'sampling_params.top_p'"));
    }

    #[test]
    fn errors_name_the_fields_of_the_message() {
        for (param, prompt, expected) in [
            ("prompt", "text", "text"),
            ("prompt.3", "token_ids", "token_ids.3"),
            (
                "messages.0.content",
                "conversation",
                "conversation.messages.0.content",
            ),
            ("top_logprobs", "conversation", "sampling_params.logprobs"),
            ("cache_salt", "text", "cache_salt"),
        ] {
            let error = ApiError::invalid(param, format!("'{param}' is wrong"));
            assert_eq!(located(error, prompt).param.as_deref(), Some(expected));
        }
    }
}
