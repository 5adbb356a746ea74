//! Puts the parts together and keeps them until the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use octavo_edge::{
    Apart, Failure, Keys, Listener, Protocol, Reload, Shutdown, Signals, Tls, TokenBudget,
    serve_apart, watch,
};
use octavo_engine::{EngineClient, EngineConfig, Fleet};
use octavo_http::{App, AppState, LIGHT, ResponseStore, StoreLimits};
use octavo_render::{ParserSettings, Renderer};
use octavo_telemetry::Metrics;
use serde_json::json;

use crate::config::Config;
use crate::events::{beat, report, report_asked, report_trials};
use crate::otlp::Otlp;
use crate::process::{self, Inherited};

/// Serves until a signal comes.
pub(crate) async fn run(config: &Config, compute_threads: usize) -> Result<(), Failure> {
    let shutdown = Shutdown::default();
    let signals = Signals::new()
        .map_err(|error| Failure::other(format!("cannot watch for signals: {error}")))?;
    let keys = keys(config)?;
    let tls = tls(config)?;
    let apart = Apart::start(LIGHT, process::wake_soon)
        .map_err(|error| Failure::other(format!("cannot start a thread: {error}")))?;
    let (listener, grpc) = listeners(config, &apart, tls.as_ref())?;
    let renderer = load(config)?;
    let clients = connect(config).await?;
    let trials: Vec<_> = clients.iter().map(|client| client.trial()).collect();
    let fleet = Arc::new(Fleet::new(clients, config.max_open_requests));
    let settings = config
        .edge
        .settings(compute_threads)
        .map_err(Failure::Config)?;
    let main_name = &config.served_model_names[0];
    let traces = traces(config, main_name)?;
    let sink = traces.clone().map(|traces| traces as Arc<_>);
    let app = App {
        generate: Arc::clone(&fleet) as Arc<_>,
        renderer: Arc::new(renderer),
        metrics: Arc::new(Metrics::new(main_name).with_traces(sink)),
        model_names: config.served_model_names.clone(),
        priorities: config.scheduling_policy == "priority",
        request_timings: config.enable_per_request_metrics,
        pooling: config.pooling.clone(),
        responses: store(config)?,
        keys: Arc::clone(&keys),
        tokens: Arc::new(TokenBudget::new(settings.max_open_tokens)),
        about: config.about(),
        settings: settings.clone(),
        shutdown: shutdown.clone(),
    };
    let entrances = entrances(&app.shared(), listener, grpc)?;
    let patience = config.shutdown_timeout().map_err(Failure::Config)?;
    tokio::spawn(signals.obey(shutdown.clone()));
    let mut parts: Vec<Arc<dyn Reload>> = vec![keys];
    parts.extend(tls.map(|tls| tls as Arc<_>));
    tokio::spawn(watch(parts));
    announce(&entrances);
    beat().map_err(|error| Failure::other(format!("cannot start a thread: {error}")))?;
    for (rank, trial) in trials.into_iter().enumerate() {
        tokio::spawn(report_trials(rank, trial));
    }
    tokio::spawn(report_asked(shutdown.clone()));
    let served = serve_apart(&apart, entrances, settings, shutdown, patience).await;
    // What still runs was told to end; the engine must know before this process goes.
    fleet.shutdown(Duration::ZERO).await;
    if let Some(traces) = traces {
        // It waits for its thread; if that panics, nothing is left to send.
        let _ = tokio::task::spawn_blocking(move || traces.finish()).await;
    }
    tracing::info!("stopped");
    served.map_err(|error| Failure::other(format!("cannot accept connections: {error}")))
}

/// Where traces go; `None`: nowhere.
fn traces(config: &Config, model: &str) -> Result<Option<Arc<Otlp>>, Failure> {
    let endpoint = config.otlp_traces_endpoint.as_deref();
    let started = endpoint.map(|endpoint| Otlp::start(endpoint, model));
    started.transpose().map_err(Failure::Config)
}

/// Opens the store of responses; `None`: none are kept.
fn store(config: &Config) -> Result<Option<Arc<ResponseStore>>, Failure> {
    if config.response_store_max_bytes == 0 {
        return Ok(None);
    }
    let limits = StoreLimits {
        max_bytes: config.response_store_max_bytes,
        max_age: config.response_store_max_age().map_err(Failure::Config)?,
    };
    let store = ResponseStore::open(config.response_store.as_deref(), limits);
    let shown = config
        .response_store
        .as_deref()
        .unwrap_or("memory".as_ref());
    let failed =
        |problem| Failure::config(format!("--response-store {}: {problem}", shown.display()));
    store.map(Arc::new).map(Some).map_err(failed)
}

/// Reads what can be wrong with the configuration and costs next to nothing to read.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    keys(config)?;
    tls(config)?;
    Ok(())
}

fn keys(config: &Config) -> Result<Arc<Keys>, Failure> {
    Keys::new(&config.api_keys, config.api_key_file.as_deref())
        .map(Arc::new)
        .map_err(Failure::Config)
}

fn tls(config: &Config) -> Result<Option<Arc<Tls>>, Failure> {
    let files = config.edge.tls_files().map_err(Failure::Config)?;
    let tls = files.map(Tls::open).transpose();
    Ok(tls
        .map_err(|error| Failure::config(error.to_string()))?
        .map(Arc::new))
}

fn listen(fd: i32, name: &str, tls: Option<&Arc<Tls>>) -> Result<Listener, Failure> {
    let listener = process::inherited_listener(fd).and_then(|socket| match socket {
        Inherited::Tcp(socket) => Listener::new(socket),
        Inherited::Unix(socket) => Listener::unix(socket),
    });
    let listener = listener.map_err(|error| {
        Failure::config(format!("{name} {fd} is no socket that listens: {error}"))
    })?;
    Ok(match tls {
        Some(tls) => listener.with_tls(Arc::clone(tls)),
        None => listener,
    })
}

/// The sockets of HTTP and, where there is one, of gRPC.
fn listeners(
    config: &Config,
    apart: &Apart,
    tls: Option<&Arc<Tls>>,
) -> Result<(Listener, Option<Listener>), Failure> {
    let _watched = apart.enter();
    let http = listen(config.listen_fd, "listen_fd", tls)?;
    Ok((http, grpc_listener(config, tls)?))
}

/// The socket of gRPC, where there is to be one.
fn grpc_listener(config: &Config, tls: Option<&Arc<Tls>>) -> Result<Option<Listener>, Failure> {
    let listener = config
        .grpc_listen_fd
        .map(|fd| listen(fd, "grpc_listen_fd", tls));
    let listener = listener.transpose()?;
    Ok(listener.map(|listener| listener.speaking(Protocol::Http2)))
}

/// The sockets with what answers on them, HTTP first.
fn entrances(
    state: &Arc<AppState>,
    http: Listener,
    grpc: Option<Listener>,
) -> Result<Vec<(Listener, Router)>, Failure> {
    let mut entrances = vec![(http, state.router())];
    if let Some(listener) = grpc {
        let router = octavo_grpc::router(state)
            .map_err(|error| Failure::other(format!("gRPC's descriptors: {error}")))?;
        entrances.push((listener, router));
    }
    Ok(entrances)
}

fn load(config: &Config) -> Result<Renderer, Failure> {
    let parsers = ParserSettings {
        tool: config.tool_call_parser.clone(),
        reasoning: config.reasoning_parser.clone(),
        auto_tool_choice: config.enable_auto_tool_choice,
        format_files: config.format_files.clone(),
    };
    let renderer = Renderer::load(&config.tokenizer_dir, config.seed)
        .map(|renderer| renderer.with_max_logprobs(usize::try_from(config.max_logprobs).ok()))
        .and_then(|renderer| renderer.with_parsers(&parsers))
        .map_err(|error| Failure::config(error.to_string()))?
        .trusting_templates(config.trust_request_chat_template)
        .with_prompt_embeds(config.enable_prompt_embeds);
    if let Some(format) = renderer.native_format() {
        tracing::info!(
            "no chat template: conversations are written by the native format {}",
            format.name()
        );
    }
    for note in renderer.notes() {
        tracing::info!("{note}");
    }
    // They are about tokens that it makes.
    let makes_tokens = config.pooling.is_none();
    for warning in renderer.warnings().iter().filter(|_| makes_tokens) {
        tracing::warn!("{warning}");
    }
    Ok(renderer)
}

/// Opens the sockets that engine cores connect to, one for each rank.
async fn connect(config: &Config) -> Result<Vec<Arc<EngineClient>>, Failure> {
    let mut clients = Vec::new();
    for (rank, endpoint) in (0..).zip(&config.engine_endpoints) {
        let engine = EngineConfig {
            rank,
            key: config.link_key().map_err(Failure::Config)?,
            max_open_requests: config.max_open_requests,
            replay_timeout: config.replay_timeout().map_err(Failure::Config)?,
            ..EngineConfig::new(endpoint)
        };
        let client = EngineClient::start(engine)
            .await
            .map_err(|error| Failure::other(format!("engine_endpoints: {endpoint}: {error}")))?;
        clients.push(client);
    }
    Ok(clients)
}

/// Tells the supervisor that connections are answered from now on.
fn announce(entrances: &[(Listener, Router)]) {
    let places: Vec<String> = entrances
        .iter()
        .map(|(listener, _)| listener.place().to_string())
        .collect();
    let fields = json!({
        "pid": std::process::id(),
        "address": places.first(),
        "grpc_address": places.get(1),
    });
    report("listening", fields);
}
