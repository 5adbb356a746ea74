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
    ApiError, Body as JsonObject, GenerateChoice, GenerateRequest, GenerateResponse, Usage,
    served_name,
};
use octavo_edge::{
    JsonBody, Refusal, RequestId, contain, defect, error_json, stopping, unix_seconds, warn,
};
use octavo_telemetry::Caller;
use serde::Serialize;
use tokio::time::timeout;

use crate::app::{App, AppState};
use crate::envelope::Identity;
use crate::generate::{Order, limits, scheduling, submit};
use crate::logprobs::Shown;
use crate::output::Piece;
use crate::outputs::Outputs;
use crate::pinned::Pinned;
use crate::route::Route;
use crate::sse::{respond, silence};

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
        stream(outputs, identity, ready.counted, keep_alive).await
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

/// Waits for the next piece of any output, and says which. Cancel safe.
async fn next(outputs: &mut Outputs) -> Result<(u32, Piece), ApiError> {
    let mut piece = Piece::default();
    let index = outputs.next(&mut piece).await?;
    Ok((index, piece))
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
    while outputs.open() > 0 {
        let (index, piece) = next(&mut outputs).await?;
        let Some(choice) = choices.get_mut(index as usize) else {
            continue;
        };
        choice.token_ids.extend(piece.tokens);
        prompt_logprobs = prompt_logprobs.or(piece.prompt_logprobs);
        if let Some(Shown::Chat(more)) = piece.logprobs {
            let all = choice.logprobs.get_or_insert_default();
            all.content.extend(more.content);
        }
        if let Some(end) = piece.end {
            choice.finish_reason = Some(end.reason);
            choice.stop_reason = end.stop;
        }
    }
    let usage = outputs.usage();
    let mut answer = response(&identity, choices, Some(usage));
    answer.prompt_logprobs = prompt_logprobs;
    Ok(Json(answer).into_response())
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
        prompt_logprobs: None,
    }
}

/// Answers with a stream of events. The head waits for the first ids, so that what the engine refuses has a status of
/// its own; but no longer than `keep_alive`.
async fn stream(
    mut outputs: Outputs,
    identity: Identity,
    counted: Counted,
    keep_alive: Duration,
) -> Response {
    let mut events = Events {
        identity,
        counted,
        buffer: Vec::new(),
        outputs: None,
    };
    match timeout(keep_alive, next(&mut outputs)).await {
        Ok(Ok((index, piece))) => events.piece(outputs, index, piece),
        Ok(Err(error)) => return Refusal(error).into_response(),
        Err(_) => {
            events.comment(silence(outputs.paused()));
            events.outputs = Some(outputs);
        }
    }
    let body = futures::stream::unfold(events, move |mut events| async move {
        let bytes = events.next(keep_alive).await?;
        Some((Ok::<_, Infallible>(bytes), events))
    });
    respond(Body::from_stream(body))
}

/// Which events of a stream carry a usage.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// One of its own, the last.
    last: bool,
    /// Each, as far as the outputs go then.
    each: bool,
}

/// The events of one stream.
struct Events {
    identity: Identity,
    counted: Counted,
    buffer: Vec<u8>,
    /// `None` when the last event is written.
    outputs: Option<Outputs>,
}

impl Events {
    /// Returns what is to be written next; `None` when all is.
    async fn next(&mut self, keep_alive: Duration) -> Option<Bytes> {
        while self.buffer.is_empty() {
            self.outputs.as_ref()?;
            let id = self.identity.id.clone();
            if contain(&id, self.advance(keep_alive)).await.is_none() {
                self.buffer.clear();
                self.fail(&defect());
            }
        }
        Some(std::mem::take(&mut self.buffer).into())
    }

    async fn advance(&mut self, keep_alive: Duration) {
        let Some(mut outputs) = self.outputs.take() else {
            return;
        };
        match timeout(keep_alive, next(&mut outputs)).await {
            Ok(Ok((index, piece))) => self.piece(outputs, index, piece),
            Ok(Err(error)) => self.fail(&error),
            Err(_) => {
                self.comment(silence(outputs.paused()));
                self.outputs = Some(outputs);
            }
        }
    }

    /// Writes what a step brought to an output; behind the last one of all the usage and the end.
    fn piece(&mut self, outputs: Outputs, index: u32, piece: Piece) {
        let (finish_reason, stop_reason) = match piece.end {
            None => (None, None),
            Some(end) => (Some(end.reason), end.stop),
        };
        let logprobs = match piece.logprobs {
            Some(Shown::Chat(logprobs)) => Some(logprobs),
            _ => None,
        };
        if !piece.tokens.is_empty() || logprobs.is_some() || finish_reason.is_some() {
            let choice = GenerateChoice {
                index,
                token_ids: piece.tokens,
                logprobs,
                finish_reason,
                stop_reason,
            };
            let so_far = self.counted.each.then(|| outputs.usage());
            let event = response(&self.identity, vec![choice], so_far);
            self.event(&event);
        }
        if outputs.open() > 0 {
            self.outputs = Some(outputs);
            return;
        }
        if self.counted.last {
            let event = response(&self.identity, Vec::new(), Some(outputs.usage()));
            self.event(&event);
        }
        self.buffer.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn fail(&mut self, error: &ApiError) {
        self.outputs = None;
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
