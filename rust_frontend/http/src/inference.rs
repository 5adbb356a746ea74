//! `/inference/v1/generate`: token ids in, token ids out. No text is rendered or shown, but stop strings still end an output.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use octavo_api::{
    ApiError, Body as JsonObject, GenerateChoice, GenerateRequest, GenerateResponse,
    SchedulingFields, Usage, served_name,
};
use octavo_edge::{
    JsonBody, Refusal, RequestId, contain, defect, error_json, stopping, unix_seconds,
};
use octavo_render::Prepared;
use octavo_telemetry::Caller;
use serde::Serialize;
use tokio::time::timeout;

use crate::app::{App, AppState};
use crate::envelope::Identity;
use crate::generate::{Order, limits, scheduling, submit};
use crate::output::{Output, Piece};
use crate::pinned::Pinned;
use crate::route::Route;
use crate::sse::{respond, silence};

/// A request that is ready for the engine.
struct Ready {
    request_id: Option<String>,
    model: String,
    stream: bool,
    include_usage: bool,
    prepared: Prepared,
    scheduling: SchedulingFields,
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
    let pinned = Pinned::of(request.headers());
    let body = state.bodies.read(request).await?;
    let length = body.bytes.len();
    let worker = Arc::clone(&state);
    let mut ready = state
        .compute
        .run(length, move || prepare(&worker.app, &body))
        .await?;
    pinned.apply(&mut ready.scheduling)?;
    let identity = Identity {
        route: Route::Completion,
        id: ready
            .request_id
            .unwrap_or_else(|| id.with_prefix("generate")),
        created: unix_seconds(),
        model: ready.model,
        parent: id.parent(),
    };
    let order = Order {
        caller: Caller {
            request_type: "generate",
            stream: ready.stream,
        },
        scheduling: ready.scheduling,
        return_token_ids: true,
        prompt_logprobs: false,
        only_prompt: false,
        beam: None,
        prepared: vec![ready.prepared],
    };
    let output = submit(&state.app, &identity, order, arrival)?
        .pop()
        .ok_or_else(defect)?;
    if ready.stream {
        let keep_alive = state.app.settings.keep_alive;
        return Ok(stream(output, identity, ready.include_usage, keep_alive).await);
    }
    Ok(whole(output, identity).await?)
}

fn prepare(app: &App, body: &JsonBody) -> Result<Ready, ApiError> {
    let body = JsonObject::parse(&body.bytes)?;
    let model = served_name(&app.model_names, body.model()?)?;
    let mut request = GenerateRequest::from_body(body)?;
    Ok(Ready {
        request_id: request.request_id.take(),
        model,
        stream: request.stream,
        include_usage: request.include_usage,
        scheduling: scheduling(app, std::mem::take(&mut request.scheduling))?,
        prepared: app.renderer.generate(request, limits(app)?)?,
    })
}

/// Waits for the end and answers with all ids.
async fn whole(mut output: Output, identity: Identity) -> Result<Response, ApiError> {
    let mut tokens = Vec::new();
    let end = loop {
        let piece = output.next().await?;
        tokens.extend(piece.tokens);
        if let Some(end) = piece.end {
            break end;
        }
    };
    // Where a stop string ended the output, the engine still runs the request.
    drop(output);
    let choice = GenerateChoice {
        index: 0,
        token_ids: tokens,
        logprobs: None,
        finish_reason: Some(end.reason),
        stop_reason: end.stop,
    };
    Ok(Json(response(&identity, vec![choice], Some(end.usage))).into_response())
}

fn response(
    identity: &Identity,
    choices: Vec<GenerateChoice>,
    usage: Option<Usage>,
) -> GenerateResponse {
    GenerateResponse {
        request_id: identity.id.clone(),
        model: identity.model.clone(),
        created: identity.created,
        choices,
        usage,
    }
}

/// Answers with a stream of events. The head waits for the first ids, so that what the engine refuses has a status of
/// its own; but no longer than `keep_alive`.
async fn stream(
    mut output: Output,
    identity: Identity,
    include_usage: bool,
    keep_alive: Duration,
) -> Response {
    let mut events = Events {
        identity,
        include_usage,
        buffer: Vec::new(),
        output: None,
    };
    match timeout(keep_alive, output.next()).await {
        Ok(Ok(piece)) => {
            let ended = events.piece(piece);
            events.output = (!ended).then_some(output);
        }
        Ok(Err(error)) => return Refusal(error).into_response(),
        Err(_) => {
            events.comment(silence(output.paused()));
            events.output = Some(output);
        }
    }
    let body = futures::stream::unfold(events, move |mut events| async move {
        let bytes = events.next(keep_alive).await?;
        Some((Ok::<_, Infallible>(bytes), events))
    });
    respond(Body::from_stream(body))
}

/// The events of one stream.
struct Events {
    identity: Identity,
    include_usage: bool,
    buffer: Vec<u8>,
    /// `None` when the last event is written.
    output: Option<Output>,
}

impl Events {
    /// Returns what is to be written next; `None` when all is.
    async fn next(&mut self, keep_alive: Duration) -> Option<Bytes> {
        while self.buffer.is_empty() {
            self.output.as_ref()?;
            let id = self.identity.id.clone();
            if contain(&id, self.advance(keep_alive)).await.is_none() {
                self.buffer.clear();
                self.fail(&defect());
            }
        }
        Some(std::mem::take(&mut self.buffer).into())
    }

    async fn advance(&mut self, keep_alive: Duration) {
        let Some(mut output) = self.output.take() else {
            return;
        };
        match timeout(keep_alive, output.next()).await {
            Ok(Ok(piece)) => {
                let ended = self.piece(piece);
                self.output = (!ended).then_some(output);
            }
            Ok(Err(error)) => self.fail(&error),
            Err(_) => {
                self.comment(silence(output.paused()));
                self.output = Some(output);
            }
        }
    }

    /// Writes what a step brought; returns whether it was the last.
    fn piece(&mut self, piece: Piece) -> bool {
        let (reason, stop, usage) = match piece.end {
            None => (None, None, None),
            Some(end) => (Some(end.reason), end.stop, Some(end.usage)),
        };
        if !piece.tokens.is_empty() || reason.is_some() {
            let choice = GenerateChoice {
                index: 0,
                token_ids: piece.tokens,
                logprobs: None,
                finish_reason: reason,
                stop_reason: stop,
            };
            let event = response(&self.identity, vec![choice], None);
            self.event(&event);
        }
        let Some(usage) = usage else {
            return false;
        };
        if self.include_usage {
            let event = response(&self.identity, Vec::new(), Some(usage));
            self.event(&event);
        }
        self.buffer.extend_from_slice(b"data: [DONE]\n\n");
        true
    }

    fn fail(&mut self, error: &ApiError) {
        self.output = None;
        self.buffer.extend_from_slice(b"data: ");
        self.buffer.extend_from_slice(&error_json(error));
        self.buffer.extend_from_slice(b"\n\ndata: [DONE]\n\n");
    }

    fn event(&mut self, event: &impl Serialize) {
        self.buffer.extend_from_slice(b"data: ");
        // Into memory, which cannot fail for these types.
        let _ = serde_json::to_writer(&mut self.buffer, event);
        self.buffer.extend_from_slice(b"\n\n");
    }

    fn comment(&mut self, text: &str) {
        self.buffer.extend_from_slice(b": ");
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.extend_from_slice(b"\n\n");
    }
}
