//! Requests of the OpenAI routes to bodies of `/inference/v1/generate`.

use octavo_api::{
    ApiError, Body, ChatRequest, CompletionRequest, RenderFields, RenderedRequest,
    SchedulingFields, StreamOptions,
};
use octavo_render::{RenderedPrompt, Wanted};

use crate::service::{Answer, Asked, TextService, json};

/// What is equal in all bodies that one request gives.
struct Common {
    model: String,
    stream: bool,
    options: StreamOptions,
    fields: RenderFields,
}

pub(crate) fn chat(
    service: &TextService,
    mut body: Body,
    model: String,
    asked: &Asked,
) -> Result<Answer, ApiError> {
    let fields = RenderFields::take(&mut body)?;
    let mut request = ChatRequest::from_body(body)?;
    let ignored = std::mem::take(&mut request.ignored);
    let rendered = service
        .renderer
        .render_chat(&request, service.limits(), wanted(&fields))?;
    let id = fields
        .request_id
        .clone()
        .unwrap_or_else(|| format!("chatcmpl-{}", asked.id));
    let common = Common {
        model,
        stream: request.stream,
        options: StreamOptions {
            include_usage: request.include_usage,
            continuous_usage_stats: request.continuous_usage,
        },
        fields,
    };
    json(
        &put_together(&common, &request.scheduling, id, rendered),
        ignored,
    )
}

/// One body for each prompt.
pub(crate) fn completion(
    service: &TextService,
    mut body: Body,
    model: &str,
    asked: &Asked,
) -> Result<Answer, ApiError> {
    let fields = RenderFields::take(&mut body)?;
    if fields.assistant_mask {
        let name = "return_assistant_tokens_mask";
        let message = format!("'{name}' needs messages: a plain prompt has no assistant in it.");
        return Err(ApiError::invalid(name, message));
    }
    let requests = CompletionRequest::batch(body)?;
    let id = fields
        .request_id
        .clone()
        .unwrap_or_else(|| format!("cmpl-{}", asked.id));
    let several = requests.len() > 1;
    let wanted = wanted(&fields);
    let common = Common {
        model: model.to_owned(),
        stream: requests.first().is_some_and(|request| request.stream),
        options: requests
            .first()
            .map_or_else(StreamOptions::default, |request| StreamOptions {
                include_usage: request.include_usage,
                continuous_usage_stats: request.continuous_usage,
            }),
        fields,
    };
    let limits = service.limits();
    let render = |(index, request): (usize, &CompletionRequest)| {
        let rendered = service
            .renderer
            .render_completion(request, limits, wanted)
            .map_err(|error| {
                if several {
                    error.entry("prompt", index)
                } else {
                    error
                }
            })?;
        let id = if several {
            format!("{id}-{index}")
        } else {
            id.clone()
        };
        Ok(put_together(&common, &request.scheduling, id, rendered))
    };
    let rendered: Result<Vec<_>, ApiError> = requests.iter().enumerate().map(render).collect();
    let ignored = requests.first().map(|request| request.ignored.clone());
    json(&rendered?, ignored.unwrap_or_default())
}

fn wanted(fields: &RenderFields) -> Wanted {
    Wanted {
        offsets: fields.offsets,
        assistant_mask: fields.assistant_mask,
        text: fields.prompt_text,
    }
}

fn put_together(
    common: &Common,
    scheduling: &SchedulingFields,
    request_id: String,
    rendered: RenderedPrompt,
) -> RenderedRequest {
    let mut passed = common.fields.passed.clone();
    if scheduling.priority != 0 {
        passed.insert("priority".to_owned(), scheduling.priority.into());
    }
    if let Some(salt) = &scheduling.cache_salt {
        passed.insert("cache_salt".to_owned(), salt.as_str().into());
    }
    if let Some(session) = &scheduling.session_id {
        passed.insert("session_id".to_owned(), session.as_str().into());
    }
    let mut sampling_params = rendered.sampling;
    sampling_params.extend(common.fields.sampling.clone());
    RenderedRequest {
        request_id,
        token_ids: rendered.token_ids,
        token_offsets: rendered.offsets,
        assistant_tokens_mask: rendered.assistant_mask,
        prompt_text: rendered.text,
        sampling_params,
        model: common.model.clone(),
        stream: common.stream,
        stream_options: (common.options != StreamOptions::default()).then_some(common.options),
        passed,
    }
}
