//! `POST /v1/responses/input_tokens`: the tokens of the prompt that a response would have.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use octavo_api::{ApiError, InputTokenCount, ResponsesRequest};
use octavo_edge::{Caller, Refusal, warn};

use super::create::check_store;
use super::prepare::{history, of_input};
use super::references::resolve;
use crate::app::AppState;
use crate::messages::MAX_TEXT;
use crate::start::{checked, model};

pub(crate) async fn input_tokens(
    State(state): State<Arc<AppState>>,
    caller: Option<Extension<Caller>>,
    request: Request,
) -> Result<Response, Refusal> {
    let caller = caller.map(|Extension(caller)| caller).unwrap_or_default();
    let body = state.bodies.read(request).await?;
    let ready = checked(&state, body, |app, body| {
        model(app, &body)?;
        ResponsesRequest::from_body(body)
    });
    let mut request = ready.await?;
    check_store(&state, &mut request.object)?;
    resolve(&state.responses, &mut request.input, &caller).await?;
    let previous = request.object.previous_response_id.as_deref();
    let before = history(&state.responses, previous, &caller).await?;
    let length = serde_json::to_vec(&before).map_or(usize::MAX, |text| text.len());
    let worker = Arc::clone(&state);
    let count = move || {
        request.chat.messages = request.messages(&before, 0)?;
        let renderer = &worker.app.renderer;
        let tokens = renderer.chat_tokens(&request.chat, MAX_TEXT, renderer.limits());
        let tokens = tokens.map_err(of_input)?;
        Ok::<_, ApiError>((tokens.len(), request.ignored))
    };
    let (count, ignored) = state.compute.run(length, count).await?;
    Ok(warn(
        Json(InputTokenCount::new(count)).into_response(),
        &ignored,
    ))
}
