//! From a request that reads like a chat to its one running output: what the routes beside OpenAI's older ones share.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use octavo_api::{ApiError, Body, ChatRequest, served_name};
use octavo_edge::{JsonBody, stopping};
use octavo_render::Prepared;
use octavo_telemetry::Caller;

use crate::app::{App, AppState};
use crate::envelope::Identity;
use crate::generate::{Order, limits, scheduling, submit, work};
use crate::output::Output;
use crate::pinned::Pinned;

/// A body, read within the limits, when it began to come.
pub(crate) struct Arrived {
    pub(crate) body: JsonBody,
    pub(crate) at: Instant,
    /// The header that names an engine core.
    pub(crate) pinned: Pinned,
}

/// Reads the body of a request that makes tokens.
///
/// # Errors
/// 503 where the server is going away; a body that is too large or no JSON.
pub(crate) async fn arrive(state: &AppState, request: Request) -> Result<Arrived, ApiError> {
    let at = Instant::now();
    if !state.app.shutdown.accepting() {
        return Err(stopping());
    }
    let pinned = Pinned::of(&state.app, request.headers());
    let body = state.bodies.read(request).await?;
    Ok(Arrived { body, at, pinned })
}

/// Runs the checks of a body where they do not hold up others.
pub(crate) async fn checked<T: Send + 'static>(
    state: &Arc<AppState>,
    body: JsonBody,
    check: impl FnOnce(&App, Body) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let length = work(&body.bytes);
    let worker = Arc::clone(state);
    let job = move || check(&worker.app, Body::parse(&body.bytes)?);
    state.compute.run(length, job).await
}

/// The name under which the model was asked for; checked before anything else of the body.
pub(crate) fn model(app: &App, body: &Body) -> Result<String, ApiError> {
    served_name(&app.model_names, body.model()?)
}

/// Renders a chat.
pub(crate) fn render(app: &App, chat: &mut ChatRequest) -> Result<Prepared, ApiError> {
    chat.scheduling = scheduling(app, std::mem::take(&mut chat.scheduling))?;
    app.renderer.chat(chat, limits(app)?)
}

/// Hands a rendered chat to the engine; `request_type` names the API in metrics.
pub(crate) fn start(
    app: &App,
    identity: &Identity,
    prepared: Prepared,
    chat: ChatRequest,
    request_type: &'static str,
    at: Instant,
) -> Result<Output, ApiError> {
    let order = Order {
        caller: Caller {
            request_type,
            stream: chat.stream,
        },
        scheduling: chat.scheduling,
        return_token_ids: false,
        prompt_logprobs: false,
        only_prompt: false,
        beam: None,
        prepared: vec![prepared],
    };
    let output = submit(app, identity, order, at)?.pop();
    output.ok_or_else(|| ApiError::internal("A prompt was prepared that asks for no output."))
}
