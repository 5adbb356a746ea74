//! The routes that say how the server is: models, liveness, readiness, version, metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use octavo_api::{ApiError, ModelCard, ModelList};
use octavo_edge::{PathText, RETRY_S, Refusal, stopping, unix_seconds};
use octavo_engine::{Generate, RankView};
use octavo_telemetry::{EngineView, RankFigures};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::app::{App, AppState};

/// Lists the served names.
pub(crate) async fn models(State(state): State<Arc<AppState>>) -> Json<ModelList> {
    let length = state.app.generate.info().map(|info| info.max_model_len);
    Json(ModelList::new(
        &state.app.model_names,
        state.created,
        length,
    ))
}

/// Describes one served name, which may hold slashes.
pub(crate) async fn model(
    State(state): State<Arc<AppState>>,
    PathText(name): PathText,
) -> Result<Json<ModelCard>, Refusal> {
    let Json(list) = models(State(Arc::clone(&state))).await;
    list.data
        .into_iter()
        .find(|card| card.id == name)
        .map(Json)
        .ok_or_else(|| Refusal(ApiError::model_not_found(&name, &state.app.model_names)))
}

/// Liveness: 200 while the engine is there or may still come back.
pub(crate) async fn health(State(state): State<Arc<AppState>>) -> Result<Json<Value>, Refusal> {
    state.alive()?;
    Ok(Json(json!({"status": "ok"})))
}

/// Readiness: 200 while an engine is ready and requests are accepted.
pub(crate) async fn ready(State(state): State<Arc<AppState>>) -> Result<Json<Value>, Refusal> {
    state.ready()?;
    Ok(Json(json!({"status": "ready"})))
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": octavo_wire::VERSION}))
}

/// An engine that is away for longer does not hold up what is told of the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the engine says of itself; while it does not answer, what was known of it last; `None` before one was ready.
async fn engine_info(app: &App) -> Option<Value> {
    let asked = app.generate.control("server_info", BTreeMap::new());
    let told = timeout(PATIENCE, asked).await.ok().and_then(Result::ok);
    let told = told.and_then(|result| serde_json::from_str(result.get("info")?).ok());
    told.or_else(|| known(app))
}

fn known(app: &App) -> Option<Value> {
    app.generate.info().map(|info| {
        let state = info.model_state.as_ref();
        json!({
            "weight_version": state.map_or("0", |state| state.weight_version.as_str()),
            "state": state.map_or("running", |state| state.state.as_str()),
            "model": info.model,
            "dtype": info.dtype,
            "max_model_len": info.max_model_len,
            "vocab_size": info.vocab_size,
            "num_blocks": info.num_blocks,
            "block_tokens": info.block_tokens,
            "max_num_seqs": info.max_num_seqs,
            "world_size": info.world_size,
            "prefix_caching": info.prefix_caching,
            "startup_ms": info.startup_ms,
        })
    })
}

/// Says what this server is, how it was set up, and what its engine says of itself.
pub(crate) async fn server_info(State(state): State<Arc<AppState>>) -> Json<Value> {
    Json(state.server_info().await)
}

/// Ends the server in order, as SIGTERM does.
pub(crate) async fn shutdown(State(state): State<Arc<AppState>>) -> Json<Value> {
    state.app.shutdown.ask();
    Json(json!({"status": "shutting_down"}))
}

impl AppState {
    /// Liveness.
    ///
    /// # Errors
    /// 503 once the engine has given up.
    pub fn alive(&self) -> Result<(), ApiError> {
        if self.app.generate.alive() {
            return Ok(());
        }
        let message = "The engine has given up; the server's log says why. Restart the server.";
        Err(ApiError::unavailable(message, RETRY_S))
    }

    /// Readiness.
    ///
    /// # Errors
    /// 503 while no engine is ready or the server ends.
    pub fn ready(&self) -> Result<(), ApiError> {
        if !self.app.shutdown.accepting() {
            return Err(stopping());
        }
        if self.app.generate.ready() {
            return Ok(());
        }
        Err(ApiError::unavailable("No engine is ready yet.", RETRY_S))
    }

    /// What this server is, how it was set up, and what its engine says of itself.
    pub async fn server_info(&self) -> Value {
        let app = &self.app;
        json!({
            "version": octavo_wire::VERSION,
            "models": app.model_names,
            "created": self.created,
            "uptime_s": unix_seconds().saturating_sub(self.created),
            "ready": self.ready().is_ok(),
            "engine_restarts": app.generate.restarts(),
            "engine": engine_info(app).await,
            "ranks": ranks(app.generate.as_ref()),
            "settings": app.about,
        })
    }
}

/// How each engine core is, by data-parallel rank.
fn ranks(generate: &dyn Generate) -> Vec<Value> {
    let tell = |(rank, view): (usize, RankView)| {
        json!({
            "rank": rank,
            "ready": view.ready,
            "alive": view.alive,
            "restarts": view.restarts,
            "open": view.open,
            "running": view.running,
            "waiting": view.waiting,
        })
    };
    generate.ranks().into_iter().enumerate().map(tell).collect()
}

pub(crate) async fn metrics(State(state): State<Arc<AppState>>) -> impl IntoResponse {
    let generate = &state.app.generate;
    let (stats, info) = (generate.stats(), generate.info());
    let lag = state.bodies.lag().last();
    state.app.metrics.edge(lag, state.app.tokens.used());
    let ranks: Vec<RankFigures> = generate.ranks().iter().map(figures).collect();
    let text = state.app.metrics.encode(&EngineView {
        ranks: &ranks,
        ready: generate.ready(),
        stats: stats.as_ref(),
        info: info.as_deref(),
        restarts: generate.restarts(),
    });
    ([(CONTENT_TYPE, octavo_telemetry::CONTENT_TYPE)], text)
}

fn figures(view: &RankView) -> RankFigures {
    RankFigures {
        ready: view.ready,
        running: view.running,
        waiting: view.waiting,
    }
}
