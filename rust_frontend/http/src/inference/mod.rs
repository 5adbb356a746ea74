//! `/inference/v1/generate`: token ids in, token ids out. No text is rendered or shown, but stop strings still end an output.

mod events;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use octavo_api::{
    ApiError, Body as JsonObject, GenerateChoice, GenerateRequest, GenerateResponse, served_name,
};
use octavo_edge::{JsonBody, Refusal, RequestId, stopping, unix_seconds, warn};
use octavo_telemetry::Caller;

use crate::app::{App, AppState};
use crate::envelope::Identity;
use crate::generate::{Order, limits, scheduling, submit};
use crate::live;
use crate::logprobs::Shown;
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::pinned::Pinned;
use crate::route::Route;

pub(crate) use events::{Counted, Events};

/// A request that is ready for the engine.
struct Ready {
    request_id: Option<String>,
    model: String,
    stream: bool,
    counted: Counted,
    /// Names of fields without effect.
    ignored: Vec<String>,
    order: Order,
}

pub(crate) async fn generate(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    let arrival = Instant::now();
    if !state.app.shutdown.accepting() {
        return Err(stopping().into());
    }
    let pinned = Pinned::of(&state.app, request.headers());
    let body = state.bodies.read(request).await?;
    let length = body.bytes.len();
    let worker = Arc::clone(&state);
    let mut ready = state
        .compute
        .run(length, move || prepare(&worker.app, &body))
        .await?;
    pinned.apply(&mut ready.order.scheduling)?;
    let identity = Identity {
        // Log probabilities have the form of a chat's.
        route: Route::Chat,
        id: ready
            .request_id
            .unwrap_or_else(|| id.with_prefix("generate")),
        created: unix_seconds(),
        model: ready.model,
        parent: id.parent(),
    };
    let outputs = Outputs::new(submit(&state.app, &identity, ready.order, arrival)?);
    let response = if ready.stream {
        let keep_alive = state.app.settings.keep_alive;
        let events = Events::new(&identity, ready.counted);
        live::answer(outputs, events, &identity.id, keep_alive).await
    } else {
        whole(outputs, identity).await?
    };
    Ok(warn(response, &ready.ignored))
}

fn prepare(app: &App, body: &JsonBody) -> Result<Ready, ApiError> {
    let body = JsonObject::parse(&body.bytes)?;
    let model = served_name(&app.model_names, body.model()?)?;
    let mut request = GenerateRequest::from_body(body)?;
    Ok(Ready {
        request_id: request.request_id.take(),
        model,
        stream: request.stream,
        counted: Counted {
            last: request.include_usage,
            each: request.continuous_usage,
        },
        ignored: std::mem::take(&mut request.ignored),
        order: Order {
            caller: Caller {
                request_type: "generate",
                stream: request.stream,
            },
            scheduling: scheduling(app, std::mem::take(&mut request.scheduling))?,
            return_token_ids: true,
            prompt_logprobs: request.sampling.extras.prompt_logprobs.is_some(),
            only_prompt: false,
            beam: None,
            prepared: vec![app.renderer.generate(request, limits(app)?)?],
        },
    })
}

/// Waits for the end of all outputs and answers with their ids.
async fn whole(mut outputs: Outputs, identity: Identity) -> Result<Response, ApiError> {
    let empty = |index| GenerateChoice {
        index,
        token_ids: Vec::new(),
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
    };
    let count = u32::try_from(outputs.open()).unwrap_or(u32::MAX);
    let mut choices: Vec<GenerateChoice> = (0..count).map(empty).collect();
    let mut prompt_logprobs = None;
    let mut piece = Piece::default();
    while outputs.open() > 0 {
        let index = outputs.next(&mut piece).await?;
        let Some(choice) = choices.get_mut(index as usize) else {
            continue;
        };
        choice.token_ids.extend_from_slice(&piece.tokens);
        prompt_logprobs = prompt_logprobs.or(piece.prompt_logprobs.take());
        if let Some(Shown::Chat(more)) = piece.logprobs.take() {
            let all = choice.logprobs.get_or_insert_default();
            all.content.extend(more.content);
        }
        if let Some(end) = piece.end.take() {
            choice.finish_reason = Some(end.reason);
            choice.stop_reason = end.stop;
        }
    }
    Ok(Json(GenerateResponse {
        request_id: identity.id,
        model: identity.model,
        created: identity.created,
        choices,
        usage: Some(outputs.usage()),
        prompt_logprobs,
        weight_versions: outputs.weight_versions(),
    })
    .into_response())
}
