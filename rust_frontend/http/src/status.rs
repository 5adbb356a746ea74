//! The routes that say how the server is: models, liveness, readiness, version, metrics.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use octavo_api::{ApiError, ModelCard, ModelList};
use octavo_edge::{RETRY_S, Refusal, stopping, unix_seconds};
use octavo_engine::{Generate, RankView};
use octavo_telemetry::{EngineView, RankFigures};
use serde_json::{Value, json};

use crate::app::AppState;

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
    Path(name): Path<String>,
) -> Result<Json<ModelCard>, Refusal> {
    let Json(list) = models(State(Arc::clone(&state))).await;
    list.data
        .into_iter()
        .find(|card| card.id == name)
        .map(Json)
        .ok_or_else(|| Refusal(ApiError::model_not_found(&name, &state.app.model_names)))
}

/// Liveness: 200 while the engine is there or may still come back.
pub(crate) async fn health(State(state): State<Arc<AppState>>) -> Response {
    if state.app.generate.alive() {
        return Json(json!({"status": "ok"})).into_response();
    }
    let message = "The engine has given up; the server's log says why. Restart the server.";
    Refusal(ApiError::unavailable(message, RETRY_S)).into_response()
}

/// Readiness: 200 while an engine is ready and requests are accepted.
pub(crate) async fn ready(State(state): State<Arc<AppState>>) -> Response {
    if !state.app.shutdown.accepting() {
        return Refusal(stopping()).into_response();
    }
    if state.app.generate.ready() {
        return Json(json!({"status": "ready"})).into_response();
    }
    Refusal(ApiError::unavailable("No engine is ready yet.", RETRY_S)).into_response()
}

pub(crate) async fn version() -> Json<Value> {
    Json(json!({"version": octavo_wire::VERSION}))
}

/// Says what this server is and how it was set up.
pub(crate) async fn server_info(State(state): State<Arc<AppState>>) -> Json<Value> {
    let app = &state.app;
    let engine = app.generate.info().map(|info| {
        json!({
            "model": info.model,
            "dtype": info.dtype,
            "max_model_len": info.max_model_len,
            "vocab_size": info.vocab_size,
            "num_blocks": info.num_blocks,
            "block_size": info.block_tokens,
            "max_num_seqs": info.max_num_seqs,
            "world_size": info.world_size,
            "prefix_caching": info.prefix_caching,
            "startup_ms": info.startup_ms,
        })
    });
    Json(json!({
        "version": octavo_wire::VERSION,
        "models": app.model_names,
        "created": state.created,
        "uptime_s": unix_seconds().saturating_sub(state.created),
        "ready": app.generate.ready() && app.shutdown.accepting(),
        "engine_restarts": app.generate.restarts(),
        "engine": engine,
        "ranks": ranks(app.generate.as_ref()),
        "settings": app.about,
    }))
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
