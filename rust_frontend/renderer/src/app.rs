//! The routes of the renderer: those between text and tokens, and those that say how it is.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::CONTENT_TYPE;
use octavo_api::{ApiError, ModelCard, ModelList};
use octavo_edge::{
    Access, AccessTable, BodyReader, Compute, Keys, PathText, PerCaller, Refusal, Role, Settings,
    Shutdown, authorized, guarded, stopping, unix_seconds,
};
use octavo_render_http::{TextService, TextState, text_routes};
use octavo_telemetry::Metrics;
use serde_json::{Value, json};

/// Who may use which route, where keys are asked for: as in octavo-frontend.
const ACCESS: AccessTable = &[
    ("/health", Access::Open),
    ("/ready", Access::Open),
    ("/version", Access::Needs(Role::Inference)),
    ("/metrics", Access::Needs(Role::Metrics)),
    ("/v1/models", Access::Needs(Role::Inference)),
    ("/v1/models/{*name}", Access::Needs(Role::Inference)),
    ("/v1/chat/completions/render", Access::Needs(Role::Render)),
    ("/v1/completions/render", Access::Needs(Role::Render)),
    ("/v1/chat/completions/derender", Access::Needs(Role::Render)),
    ("/v1/completions/derender", Access::Needs(Role::Render)),
    ("/tokenize", Access::Needs(Role::Render)),
    ("/detokenize", Access::Needs(Role::Render)),
];

/// What the handlers stand on.
struct AppState {
    text: Arc<TextState>,
    metrics: Arc<Metrics>,
    /// Unix time in seconds at which this server began.
    created: u64,
}

/// Builds all routes.
pub(crate) fn router(
    service: TextService,
    settings: &Settings,
    shutdown: &Shutdown,
    keys: &Arc<Keys>,
) -> Router {
    let name = service.model_names().first().cloned().unwrap_or_default();
    let metrics = Arc::new(Metrics::without_engine(&name));
    let text = Arc::new(TextState {
        service,
        bodies: BodyReader::new(settings),
        compute: Compute::new(settings.compute_threads),
        shutdown: shutdown.clone(),
    });
    let state = Arc::new(AppState {
        text: Arc::clone(&text),
        metrics: Arc::clone(&metrics),
        created: unix_seconds(),
    });
    let router = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*name}", get(model))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/version", get(version))
        .route("/metrics", get(metrics_text))
        .with_state(state)
        .merge(text_routes(text));
    let router = authorized(
        router,
        Arc::clone(keys),
        ACCESS,
        Arc::new(PerCaller::new(settings.max_requests_per_key)),
    );
    guarded(router, metrics, settings.access_log)
}

async fn models(State(state): State<Arc<AppState>>) -> Json<ModelList> {
    Json(list(&state))
}

fn list(state: &AppState) -> ModelList {
    let service = &state.text.service;
    let length = service.limits().max_model_len as u64;
    ModelList::new(service.model_names(), state.created, Some(length))
}

/// Describes one served name, which may hold slashes.
async fn model(
    State(state): State<Arc<AppState>>,
    PathText(name): PathText,
) -> Result<Json<ModelCard>, Refusal> {
    let card = list(&state).data.into_iter().find(|card| card.id == name);
    card.map(Json).ok_or_else(|| {
        let names = state.text.service.model_names();
        Refusal(ApiError::model_not_found(&name, names))
    })
}

async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn ready(State(state): State<Arc<AppState>>) -> Response {
    if state.text.shutdown.accepting() {
        Json(json!({"status": "ready"})).into_response()
    } else {
        Refusal(stopping()).into_response()
    }
}

async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

async fn metrics_text(State(state): State<Arc<AppState>>) -> impl IntoResponse {
    let text = state.metrics.text();
    ([(CONTENT_TYPE, octavo_telemetry::CONTENT_TYPE)], text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_render_http::TextRoute;

    #[test]
    fn a_key_for_rendering_opens_the_routes_between_text_and_tokens() {
        for route in TextRoute::ALL {
            let access = ACCESS.iter().find(|(path, _)| *path == route.path());
            assert_eq!(
                access.map(|(_, access)| *access),
                Some(Access::Needs(Role::Render))
            );
        }
    }
}
