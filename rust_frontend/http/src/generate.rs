//! The generating routes: from a request's bytes to a running output, and from there to the answer.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{
    ApiError, Body, ChatRequest, CompletionRequest, ReasoningFields, SchedulingFields, served_name,
};
use octavo_edge::{JsonBody, RETRY_S, Refusal, RequestId, stopping, unix_seconds};
use octavo_engine::Submission;
use octavo_render::{Limits, Prepared};
use octavo_wire::frontend::{Domain, EngineInfo};

use crate::app::{App, AppState};
use crate::envelope::Identity;
use crate::output::{Output, TokenIds};
use crate::refusal::of_generate;
use crate::route::Route;
use crate::{sse, whole};

pub(crate) async fn chat(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    handle(state, Route::Chat, id, request).await
}

pub(crate) async fn completion(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    handle(state, Route::Completion, id, request).await
}

/// A request that is ready for the engine.
struct Ready {
    model: String,
    stream: bool,
    include_usage: bool,
    return_token_ids: bool,
    scheduling: SchedulingFields,
    reasoning: ReasoningFields,
    prepared: Prepared,
}

async fn handle(
    state: Arc<AppState>,
    route: Route,
    id: RequestId,
    request: Request,
) -> Result<Response, Refusal> {
    let arrival = Instant::now();
    if !state.app.shutdown.accepting() {
        return Err(stopping().into());
    }
    let body = state.bodies.read(request).await?;
    let length = work(&body.bytes);
    let worker = Arc::clone(&state);
    let prepare = move || prepare(&worker.app, route, &body);
    let ready = state.compute.run(length, prepare).await?;

    let identity = Identity {
        route,
        id: id.with_prefix(route.id_prefix()),
        created: unix_seconds(),
        model: ready.model,
    };
    let output = submit(
        &state.app,
        &identity,
        ready.prepared,
        ready.scheduling,
        ready.return_token_ids,
        arrival,
    )?;
    let reasoning = ready.reasoning;
    if ready.stream {
        let keep_alive = state.app.settings.keep_alive;
        return Ok(sse::answer(
            output,
            &identity,
            ready.include_usage,
            reasoning,
            keep_alive,
        )
        .await);
    }
    Ok(whole::answer(output, identity, reasoning).await?)
}

/// How much work a body is, in bytes of plain text: compiling a grammar takes as long as reading a large body.
fn work(body: &[u8]) -> usize {
    const GRAMMAR: usize = 64 << 10;
    let asks = |name: &str| memchr::memmem::find(body, name.as_bytes()).is_some();
    let guided = asks("\"response_format\"") || asks("\"structured_outputs\"") || asks("\"tools\"");
    body.len().max(if guided { GRAMMAR } else { 0 })
}

/// Parses, checks and renders a body.
fn prepare(app: &App, route: Route, body: &JsonBody) -> Result<Ready, ApiError> {
    let body = Body::parse(&body.bytes)?;
    let model = served_name(&app.model_names, body.model()?)?;
    match route {
        Route::Chat => {
            let request = ChatRequest::from_body(body)?;
            Ok(Ready {
                model,
                stream: request.stream,
                include_usage: request.include_usage,
                return_token_ids: request.return_token_ids,
                reasoning: request.reasoning,
                prepared: app.renderer.chat(&request, limits(app)?)?,
                scheduling: scheduling(app, request.scheduling)?,
            })
        }
        Route::Completion => {
            let request = CompletionRequest::from_body(body)?;
            Ok(Ready {
                model,
                stream: request.stream,
                include_usage: request.include_usage,
                return_token_ids: request.return_token_ids,
                reasoning: ReasoningFields::default(),
                prepared: app.renderer.completion(&request, limits(app)?)?,
                scheduling: scheduling(app, request.scheduling)?,
            })
        }
    }
}

pub(crate) fn limits(app: &App) -> Result<Limits, ApiError> {
    let info = app
        .generate
        .info()
        .ok_or_else(|| ApiError::unavailable("No engine is ready yet. Try again soon.", RETRY_S))?;
    Ok(limits_of(&info))
}

pub(crate) fn limits_of(info: &EngineInfo) -> Limits {
    Limits {
        max_model_len: usize::try_from(info.max_model_len).unwrap_or(usize::MAX),
        vocab_size: usize::try_from(info.vocab_size).unwrap_or(usize::MAX),
    }
}

/// Refuses a priority where all are served in the order of arrival.
pub(crate) fn scheduling(
    app: &App,
    fields: SchedulingFields,
) -> Result<SchedulingFields, ApiError> {
    if fields.priority == 0 || app.priorities {
        return Ok(fields);
    }
    let message = format!(
        "'priority' is {}, and this server serves in the order of arrival (--scheduling-policy fcfs). Leave it out, or \
         start the server with --scheduling-policy priority.",
        fields.priority
    );
    Err(ApiError::invalid("priority", message))
}

pub(crate) fn submit(
    app: &App,
    identity: &Identity,
    prepared: Prepared,
    scheduling: SchedulingFields,
    return_token_ids: bool,
    arrival: Instant,
) -> Result<Output, ApiError> {
    let text = app.renderer.output(&prepared.output);
    let prompt_tokens = prepared.prompt.len();
    let max_tokens = prepared.sampling.max_tokens;
    let ids = return_token_ids.then(|| TokenIds::new(prepared.prompt.clone()));
    let submission = Submission {
        name: identity.id.clone(),
        prompt: prepared.prompt,
        sampling: prepared.sampling,
        grammar: prepared.grammar,
        priority: scheduling.priority,
        domain: scheduling.cache_salt.map(|salt| Domain {
            salt,
            adapter: String::new(),
        }),
    };
    let steps = app.generate.submit(submission).map_err(of_generate)?;
    let metrics = app.metrics.request(identity.id.clone(), arrival);
    metrics.params(1, max_tokens);
    Ok(Output::new(
        steps,
        text,
        prompt_tokens,
        ids,
        metrics,
        app.shutdown.cut_token(),
    ))
}
