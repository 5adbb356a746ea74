//! Requests of the OpenAI routes to bodies of `/inference/v1/generate`.

use octavo_api::{
    ApiError, Body, ChatRequest, CompletionRequest, RenderFields, RenderedRequest,
    SchedulingFields, StreamOptions,
};
use octavo_render::{RenderedPrompt, Wanted};

use crate::service::{Asked, TextService};

/// What is equal in all bodies that one request gives.
struct Common {
    model: String,
    stream: bool,
    include_usage: bool,
    fields: RenderFields,
}

pub(crate) fn chat(
    service: &TextService,
    mut body: Body,
    model: String,
    asked: &Asked,
) -> Result<RenderedRequest, ApiError> {
    let fields = RenderFields::take(&mut body)?;
    let request = ChatRequest::from_body(body)?;
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
        include_usage: request.include_usage,
        fields,
    };
    Ok(put_together(&common, &request.scheduling, id, rendered))
}

/// One body for each prompt.
pub(crate) fn completion(
    service: &TextService,
    mut body: Body,
    model: &str,
    asked: &Asked,
) -> Result<Vec<RenderedRequest>, ApiError> {
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
        include_usage: requests
            .first()
            .is_some_and(|request| request.include_usage),
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
    requests.iter().enumerate().map(render).collect()
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
        stream_options: common.include_usage.then_some(StreamOptions {
            include_usage: true,
        }),
        passed,
    }
}
