//! What the handlers share, and the table of routes.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use octavo_api::ApiError;
use octavo_engine::Generate;
use octavo_render::Renderer;
use octavo_telemetry::Metrics;

use crate::body::BodyReader;
use crate::compute::Compute;
use crate::guard::guard;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::{generate, status};

/// What the routes stand on.
pub struct App {
    /// Makes tokens.
    pub generate: Arc<dyn Generate>,
    /// Makes prompts from requests, and text from tokens.
    pub renderer: Arc<Renderer>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The names that clients may ask for; the first is the model's main name.
    pub model_names: Vec<String>,
    /// Limits and time-outs.
    pub settings: Settings,
    /// When to end.
    pub shutdown: Shutdown,
}

/// An `App` and what is derived from it.
pub(crate) struct AppState {
    pub(crate) app: App,
    pub(crate) bodies: BodyReader,
    pub(crate) compute: Compute,
    /// Unix time in seconds at which this server began.
    pub(crate) created: u64,
}

impl App {
    /// Builds the routes.
    pub fn into_router(self) -> Router {
        let metrics = Arc::clone(&self.metrics);
        let state = Arc::new(AppState {
            bodies: BodyReader::new(&self.settings),
            compute: Compute::new(self.settings.compute_threads),
            created: unix_seconds(),
            app: self,
        });
        Router::new()
            .route("/v1/chat/completions", post(generate::chat))
            .route("/v1/completions", post(generate::completion))
            .route("/v1/models", get(status::models))
            .route("/v1/models/{*name}", get(status::model))
            .route("/health", get(status::health))
            .route("/ready", get(status::ready))
            .route("/version", get(status::version))
            .route("/metrics", get(status::metrics))
            .fallback(unknown_route)
            .method_not_allowed_fallback(wrong_method)
            .layer(from_fn_with_state(metrics, guard))
            .with_state(state)
    }
}

/// The time of day as Unix seconds; 0 if the clock stands before 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

async fn unknown_route(request: Request) -> Refusal {
    Refusal(ApiError::no_route(request.uri().path()))
}

async fn wrong_method(request: Request) -> Refusal {
    Refusal(ApiError::method_not_allowed(
        request.method().as_str(),
        request.uri().path(),
    ))
}
