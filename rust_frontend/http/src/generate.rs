//! The generating routes: from a request's bytes to a running output, and from there to the answer.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use octavo_api::{
    ApiError, BeamFields, Body, ChatRequest, CompletionRequest, ReasoningFields, SchedulingFields,
    served_name,
};
use octavo_edge::{RETRY_S, Refusal, RequestId, stopping, unix_seconds, warn};
use octavo_engine::Submission;
use octavo_render::{Limits, Prepared, few_enough};
use octavo_telemetry::{Asked, Caller, RequestMetrics};
use octavo_wire::frontend::{Domain, EngineInfo};

use crate::app::{App, AppState};
use crate::beam_search::{self, Search};
use crate::chunks::Chunks;
use crate::envelope::{Identity, Style};
use crate::output::{Output, Place};
use crate::outputs::Outputs;
use crate::pinned::{Pinned, in_turn};
use crate::refusal::of_generate;
use crate::route::Route;
use crate::showing::Showing;
use crate::{live, whole};

pub(crate) async fn chat(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    handle(state, Route::Chat, chat_of, id, request).await
}

/// Several conversations in one request: a choice for each.
pub(crate) async fn chat_batch(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    handle(state, Route::Chat, chats_of, id, request).await
}

pub(crate) async fn completion(
    State(state): State<Arc<AppState>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Refusal> {
    handle(state, Route::Completion, completions_of, id, request).await
}

/// A request that is ready for the engine.
pub(crate) struct Ready {
    pub(crate) model: String,
    /// As the body names the request.
    request_id: Option<String>,
    stream: bool,
    include_usage: bool,
    continuous_usage: bool,
    pub(crate) reasoning: ReasoningFields,
    /// What stands before each answer of a chat.
    echo: Option<String>,
    /// Names of fields without effect.
    ignored: Vec<String>,
    pub(crate) order: Order,
}

/// What the engine is asked for, and what the answer shows of it.
pub(crate) struct Order {
    /// For the metrics of tool calls.
    pub(crate) caller: Caller,
    pub(crate) scheduling: SchedulingFields,
    pub(crate) return_token_ids: bool,
    /// Whether the answer carries the prompts' log probabilities.
    pub(crate) prompt_logprobs: bool,
    /// Whether only the prompts are wanted.
    pub(crate) only_prompt: bool,
    /// Where the outputs of each prompt are searched for.
    pub(crate) beam: Option<BeamFields>,
    /// One for each prompt, at least one.
    pub(crate) prepared: Vec<Prepared>,
}

/// Checks and renders a body for a model of this name.
type Read = fn(&App, Body, String, Option<BeamFields>) -> Result<Ready, ApiError>;

async fn handle(
    state: Arc<AppState>,
    route: Route,
    read: Read,
    id: RequestId,
    request: Request,
) -> Result<Response, Refusal> {
    let arrival = Instant::now();
    if !state.app.shutdown.accepting() {
        return Err(stopping().into());
    }
    let pinned = Pinned::of(&state.app, request.headers());
    let body = state.bodies.read(request).await?;
    let length = work(&body.bytes);
    let worker = Arc::clone(&state);
    let prepare = move || {
        let body = read_body(&worker.app, route, &body.bytes)?;
        prepare_by(&worker.app, read, body)
    };
    let mut ready = state.compute.run(length, prepare).await?;
    pinned.apply(&mut ready.order.scheduling)?;

    let identity = Identity {
        route,
        id: match ready.request_id {
            Some(own) => format!("{}-{own}", route.id_prefix()),
            None => id.with_prefix(route.id_prefix()),
        },
        created: unix_seconds(),
        model: ready.model,
        parent: id.parent(),
    };
    let (stream, include_usage) = (ready.stream, ready.include_usage);
    let style = Style {
        reasoning: ready.reasoning,
        echo: ready.echo,
        timed: state.app.request_timings,
        counted: ready.continuous_usage,
    };
    let mut outputs = submit(&state.app, &identity, ready.order, arrival)?;
    let prompt_ids = outputs.iter_mut().map(Output::take_prompt_ids).collect();
    let outputs = Outputs::new(outputs);
    let response = if stream {
        let keep_alive = state.app.settings.keep_alive;
        let chunks = Chunks::new(&identity, prompt_ids, include_usage, style);
        live::answer(outputs, chunks, &identity.id, keep_alive).await
    } else {
        whole::answer(outputs, prompt_ids, identity, style).await?
    };
    Ok(warn(response, &ready.ignored))
}

/// How much compiling a grammar is, in bytes of plain text: it takes as long as reading a large body.
pub(crate) const GRAMMAR: usize = 64 << 10;

/// How much work a body is, in bytes of plain text.
pub(crate) fn work(body: &[u8]) -> usize {
    let asks = |name: &str| memchr::memmem::find(body, name.as_bytes()).is_some();
    let guided = asks("\"response_format\"")
        || asks("\"structured_outputs\"")
        || asks("\"tools\"")
        || asks("\"json_schema\"");
    body.len().max(if guided { GRAMMAR } else { 0 })
}

fn read_body(app: &App, route: Route, bytes: &[u8]) -> Result<Body, ApiError> {
    match route {
        Route::Chat => Body::parse_chat(bytes, app.renderer.seen()),
        Route::Completion => Body::parse(bytes),
    }
}

/// Checks and renders a body.
pub(crate) fn prepare(app: &App, route: Route, body: Body) -> Result<Ready, ApiError> {
    let read = match route {
        Route::Chat => chat_of,
        Route::Completion => completions_of,
    };
    prepare_by(app, read, body)
}

fn prepare_by(app: &App, read: Read, mut body: Body) -> Result<Ready, ApiError> {
    let model = served_name(&app.model_names, body.model()?)?;
    let beam = BeamFields::take(&mut body)?;
    let ready = read(app, body, model, beam)?;
    ready.order.searchable()?;
    Ok(ready)
}

fn chat_of(
    app: &App,
    body: Body,
    model: String,
    beam: Option<BeamFields>,
) -> Result<Ready, ApiError> {
    let request = ChatRequest::from_body(body)?;
    let prepared = app.renderer.chat(&request, limits(app)?)?;
    ready_chat(app, model, request, vec![prepared], beam)
}

fn chats_of(
    app: &App,
    body: Body,
    model: String,
    beam: Option<BeamFields>,
) -> Result<Ready, ApiError> {
    let requests = ChatRequest::batch(body)?;
    let limits = limits(app)?;
    let mut prepared = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let rendered = app.renderer.chat(request, limits);
        prepared.push(rendered.map_err(|error| error.entry("messages", index))?);
    }
    let first = requests.into_iter().next();
    let request = first.ok_or_else(|| ApiError::missing("messages"))?;
    ready_chat(app, model, request, prepared, beam)
}

/// Puts together what all conversations of a request share.
fn ready_chat(
    app: &App,
    model: String,
    request: ChatRequest,
    prepared: Vec<Prepared>,
    beam: Option<BeamFields>,
) -> Result<Ready, ApiError> {
    if let Some(beam) = beam {
        beam.fits(&request.sampling.extras)?;
    }
    Ok(Ready {
        model,
        request_id: request.request_id,
        stream: request.stream,
        include_usage: request.include_usage,
        continuous_usage: request.continuous_usage,
        reasoning: request.reasoning,
        echo: request.echo,
        ignored: request.ignored,
        order: Order {
            caller: Caller {
                request_type: "chat_completions",
                stream: request.stream,
            },
            prepared,
            scheduling: scheduling(app, request.scheduling)?,
            return_token_ids: request.return_token_ids,
            prompt_logprobs: request.sampling.extras.prompt_logprobs.is_some(),
            only_prompt: false,
            beam,
        },
    })
}

fn completions_of(
    app: &App,
    body: Body,
    model: String,
    beam: Option<BeamFields>,
) -> Result<Ready, ApiError> {
    let requests = CompletionRequest::batch(body)?;
    let limits = limits(app)?;
    let prepared: Vec<Prepared> = requests
        .iter()
        .map(|request| app.renderer.completion(request, limits))
        .collect::<Result<_, _>>()?;
    let values = prepared.iter().map(|prepared| prepared.prompt_values);
    few_enough(values.fold(0, usize::saturating_add))?;
    let first = requests.into_iter().next();
    let request = first.ok_or_else(|| ApiError::missing("prompt"))?;
    if let Some(beam) = beam {
        beam.fits(&request.sampling.extras)?;
    }
    Ok(Ready {
        model,
        request_id: request.request_id,
        stream: request.stream,
        include_usage: request.include_usage,
        continuous_usage: request.continuous_usage,
        reasoning: ReasoningFields::default(),
        echo: None,
        ignored: request.ignored,
        order: Order {
            caller: Caller {
                request_type: "completions",
                stream: request.stream,
            },
            prepared,
            scheduling: scheduling(app, request.scheduling)?,
            return_token_ids: request.return_token_ids,
            prompt_logprobs: request.sampling.extras.prompt_logprobs.is_some(),
            only_prompt: request.only_prompt,
            beam: beam.filter(|_| !request.only_prompt),
        },
    })
}

pub(crate) fn limits(app: &App) -> Result<Limits, ApiError> {
    if app.pooling.is_some() {
        let message = "This model gives vectors, not tokens. Ask /v1/embeddings, /classify, /score, /rerank or /pooling.";
        return Err(ApiError::unsupported("model", message));
    }
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
    in_turn(app.priorities, fields.priority)?;
    Ok(fields)
}

impl Order {
    /// Refuses a search among outputs of a form: each of its steps would begin the grammar anew. And one behind
    /// vectors: each of its steps would need them anew.
    fn searchable(&self) -> Result<(), ApiError> {
        let any =
            |test: fn(&Prepared) -> bool| self.beam.is_some() && self.prepared.iter().any(test);
        if any(|one| one.given.is_some()) {
            let message =
                "'use_beam_search' cannot be combined with 'prompt_embeds'. Leave one out.";
            return Err(ApiError::invalid("use_beam_search", message));
        }
        if !any(|one| one.grammar.is_some()) {
            return Ok(());
        }
        let message = "'use_beam_search' cannot be combined with an output of a given form: leave it out, or \
                       'response_format', 'structured_outputs' and forced calls.";
        Err(ApiError::invalid("use_beam_search", message))
    }

    /// Tokens of prompts and possible outputs together.
    fn tokens(&self) -> u64 {
        let of = |prepared: &Prepared| {
            let each = (prepared.prompt.len() as u64).saturating_add(prepared.sampling.max_tokens);
            each.saturating_mul(prepared.n.into())
        };
        self.prepared.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Hands all outputs of a request to the engine, those of a prompt one after the other.
pub(crate) fn submit(
    app: &App,
    identity: &Identity,
    order: Order,
    arrival: Instant,
) -> Result<Vec<Output>, ApiError> {
    let mut outputs = Vec::new();
    let shown = Showing {
        route: identity.route,
        return_token_ids: order.return_token_ids,
        prompt_logprobs: order.prompt_logprobs,
        only_prompt: order.only_prompt,
    };
    let ticket = Arc::new(app.tokens.enter(order.tokens())?);
    let info = app.generate.info();
    let single = order.prepared.len() == 1 && order.prepared[0].n == 1;
    for prepared in order.prepared {
        let prepared = Arc::new(prepared);
        let mut found = order.beam.map(|beam| {
            let search = search(&identity.id, &prepared, beam, &order.scheduling);
            beam_search::start(&app.generate, search).into_iter()
        });
        for child in 0..prepared.n {
            let index = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
            let place = Place {
                index,
                first: child == 0,
            };
            let name = output_name(&identity.id, single, index);
            let steps = match found.as_mut().and_then(Iterator::next) {
                Some(steps) => steps,
                None => app
                    .generate
                    .submit(submission(&name, &prepared, child, &order.scheduling))
                    .map_err(of_generate)?,
            };
            let mut metrics = app.metrics.request(name, arrival);
            metrics.trace(identity.parent, asked(&prepared));
            note(&mut metrics, &prepared, place, order.caller);
            let output = Output::new(
                steps,
                app.renderer.output(&prepared.output),
                prepared.prompt.len(),
                place,
                shown.extras(app, &prepared, place),
                metrics,
                app.shutdown.cut_token(),
            );
            let output = output.within(app.settings.request_timeout);
            outputs.push(output.caching(info.as_deref()).holding(Arc::clone(&ticket)));
        }
    }
    Ok(outputs)
}

/// Counts what a request asks for.
fn note(metrics: &mut RequestMetrics, prepared: &Prepared, place: Place, caller: Caller) {
    if prepared.output.seeks_calls() {
        metrics.searched(caller);
    }
    if place.first {
        metrics.params(prepared.n.into(), prepared.sampling.max_tokens);
    }
}

/// What is searched for among the outputs of a prompt.
fn search(
    name: &str,
    prepared: &Arc<Prepared>,
    beam: BeamFields,
    scheduling: &SchedulingFields,
) -> Search {
    Search {
        name: name.to_owned(),
        prepared: Arc::clone(prepared),
        length_penalty: beam.length_penalty,
        priority: scheduling.priority,
        domain: domain(scheduling),
        rank: scheduling.rank,
        session: scheduling.session_id.clone(),
    }
}

/// What the engine is asked for, for one output.
fn submission(
    name: &str,
    prepared: &Prepared,
    child: u32,
    scheduling: &SchedulingFields,
) -> Submission {
    Submission {
        name: name.to_owned(),
        prompt: prepared.prompt.clone(),
        sampling: prepared.child(child),
        grammar: prepared.grammar.clone(),
        priority: scheduling.priority,
        domain: domain_of(prepared, scheduling),
        rank: scheduling.rank,
        session: scheduling.session_id.clone(),
        pooling: None,
        embeds: prepared
            .given
            .as_ref()
            .map(|given| Arc::clone(&given.embeds)),
    }
}

/// What a trace tells of a request.
fn asked(prepared: &Prepared) -> Asked {
    let sampling = &prepared.sampling;
    Asked {
        n: prepared.n,
        max_tokens: sampling.max_tokens,
        temperature: sampling.temperature,
        top_p: sampling.top_p,
    }
}

/// What an output is called in logs: by the answer's id, and where there are several by its number.
fn output_name(id: &str, single: bool, index: u32) -> String {
    if single {
        id.to_owned()
    } else {
        format!("{id}-{index}")
    }
}

/// With whom requests share cached prefixes.
pub(crate) fn domain(scheduling: &SchedulingFields) -> Option<Domain> {
    scheduling.cache_salt.clone().map(|salt| Domain {
        salt,
        ..Domain::default()
    })
}

/// As [`domain`]; a prompt of vectors meets only prompts of the same ones.
fn domain_of(prepared: &Prepared, scheduling: &SchedulingFields) -> Option<Domain> {
    let Some(given) = &prepared.given else {
        return domain(scheduling);
    };
    let mut domain = domain(scheduling).unwrap_or_default();
    domain.media.push(given.content_id.clone());
    Some(domain)
}
