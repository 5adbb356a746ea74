//! What the handlers share, and the table of routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use octavo_edge::{
    Access, AccessTable, BodyReader, Compute, Keys, PerCaller, Role, Settings, Shutdown,
    TokenBudget, authorized, guarded, unix_seconds,
};
use octavo_engine::Generate;
use octavo_render::Renderer;
use octavo_render_http::{TextService, TextState, text_routes};
use octavo_telemetry::Metrics;

use crate::body_limits::BODY_LIMITS;
use crate::generate::limits_of;
use crate::pooling::PoolingModel;
use crate::project::shaped;
use crate::responses::{self, ResponseStore, Responses};
use crate::{control, generate, inference, messages, openapi, pooling, status};

/// Who may use which route of HTTP and which service of gRPC. What is missing here needs [`Role::Admin`].
pub const ACCESS: AccessTable = &[
    ("/v1/chat/completions", Access::Needs(Role::Inference)),
    ("/v1/chat/completions/batch", Access::Needs(Role::Inference)),
    ("/v1/completions", Access::Needs(Role::Inference)),
    ("/v1/chat/completions/render", Access::Needs(Role::Render)),
    ("/v1/chat/completions/derender", Access::Needs(Role::Render)),
    ("/v1/completions/render", Access::Needs(Role::Render)),
    ("/v1/completions/derender", Access::Needs(Role::Render)),
    ("/v1/responses", Access::Needs(Role::Inference)),
    ("/v1/responses/input_tokens", Access::Needs(Role::Inference)),
    ("/v1/responses/{id}", Access::Needs(Role::Inference)),
    ("/v1/responses/{id}/cancel", Access::Needs(Role::Inference)),
    (
        "/v1/responses/{id}/input_items",
        Access::Needs(Role::Inference),
    ),
    ("/v1/messages", Access::Needs(Role::Inference)),
    ("/v1/messages/count_tokens", Access::Needs(Role::Inference)),
    ("/inference/v1/generate", Access::Needs(Role::Inference)),
    ("/v1/embeddings", Access::Needs(Role::Inference)),
    ("/v2/embed", Access::Needs(Role::Inference)),
    ("/classify", Access::Needs(Role::Inference)),
    ("/pooling", Access::Needs(Role::Inference)),
    ("/generative_scoring", Access::Needs(Role::Inference)),
    ("/score", Access::Needs(Role::Inference)),
    ("/v1/score", Access::Needs(Role::Inference)),
    ("/rerank", Access::Needs(Role::Inference)),
    ("/v1/rerank", Access::Needs(Role::Inference)),
    ("/v2/rerank", Access::Needs(Role::Inference)),
    ("/tokenize", Access::Needs(Role::Render)),
    ("/detokenize", Access::Needs(Role::Render)),
    ("/v1/models", Access::Needs(Role::Inference)),
    ("/v1/models/{*name}", Access::Needs(Role::Inference)),
    ("/openapi.json", Access::Open),
    ("/docs", Access::Open),
    ("/health", Access::Open),
    ("/ready", Access::Open),
    ("/version", Access::Needs(Role::Inference)),
    ("/metrics", Access::Needs(Role::Metrics)),
    ("/pause", Access::Needs(Role::Admin)),
    ("/resume", Access::Needs(Role::Admin)),
    ("/is_paused", Access::Needs(Role::Admin)),
    ("/sleep", Access::Needs(Role::Admin)),
    ("/wake_up", Access::Needs(Role::Admin)),
    ("/is_sleeping", Access::Needs(Role::Admin)),
    ("/abort_requests", Access::Needs(Role::Admin)),
    ("/init_weight_transfer_engine", Access::Needs(Role::Admin)),
    ("/start_weight_update", Access::Needs(Role::Admin)),
    ("/start_draft_weight_update", Access::Needs(Role::Admin)),
    ("/update_weights", Access::Needs(Role::Admin)),
    ("/finish_weight_update", Access::Needs(Role::Admin)),
    ("/abort_weight_update", Access::Needs(Role::Admin)),
    ("/update_weight_version", Access::Needs(Role::Admin)),
    ("/weight_info", Access::Needs(Role::Admin)),
    ("/get_world_size", Access::Needs(Role::Admin)),
    ("/server_info", Access::Needs(Role::Admin)),
    ("/shutdown", Access::Needs(Role::Admin)),
    ("/reset_prefix_cache", Access::Needs(Role::Admin)),
    ("/reset_mm_cache", Access::Needs(Role::Admin)),
    ("/reset_encoder_cache", Access::Needs(Role::Admin)),
    (
        "/octavo.v1.InferenceService/{method}",
        Access::Needs(Role::Inference),
    ),
    (
        "/octavo.v1.ControlService/{method}",
        Access::Needs(Role::Admin),
    ),
    ("/grpc.health.v1.Health/{method}", Access::Open),
    (
        "/grpc.reflection.v1.ServerReflection/{method}",
        Access::Needs(Role::Inference),
    ),
    (
        "/grpc.reflection.v1alpha.ServerReflection/{method}",
        Access::Needs(Role::Inference),
    ),
];

/// Paths of requests that are light, and are to be answered however much work there is.
pub const LIGHT: &[&str] = &["/health", "/ready", "/metrics"];

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
    /// Whether requests may name a priority.
    pub priorities: bool,
    /// Whether chats and completions say when their tokens came.
    pub request_timings: bool,
    /// How the model pools; `None`: it makes tokens.
    pub pooling: Option<PoolingModel>,
    /// Where responses are kept; `None`: they are not.
    pub responses: Option<Arc<ResponseStore>>,
    /// Who may use the routes.
    pub keys: Arc<Keys>,
    /// Limits and time-outs.
    pub settings: Settings,
    /// Tokens that open requests may have together.
    pub tokens: Arc<TokenBudget>,
    /// How the server was set up, for `/server_info`; no secrets.
    pub about: serde_json::Value,
    /// When to end.
    pub shutdown: Shutdown,
}

/// An `App` and what is derived from it: what the doors of a server share.
pub struct AppState {
    pub(crate) app: App,
    pub(crate) bodies: BodyReader,
    pub(crate) compute: Compute,
    pub(crate) responses: Responses,
    pub(crate) callers: Arc<PerCaller>,
    /// Unix time in seconds at which this server began.
    pub(crate) created: u64,
}

impl App {
    /// Builds what the doors share.
    pub fn shared(self) -> Arc<AppState> {
        let bodies = BodyReader::new(&self.settings).with_limits(BODY_LIMITS);
        Arc::new(AppState {
            bodies,
            compute: Compute::new(self.settings.compute_threads),
            responses: Responses::new(self.responses.clone()),
            callers: Arc::new(PerCaller::new(self.settings.max_requests_per_key)),
            created: unix_seconds(),
            app: self,
        })
    }

    /// Builds the routes of a server without another door. Must be called on a tokio runtime, which measures its own lag.
    pub fn into_router(self) -> Router {
        self.shared().router()
    }

    /// What answers between text and ids: held against what the engine says, and before there is one, the model's files.
    fn text_service(&self) -> TextService {
        let (generate, told) = (Arc::clone(&self.generate), self.renderer.limits());
        let limits = move || generate.info().map_or(told, |info| limits_of(&info));
        TextService::new(Arc::clone(&self.renderer), self.model_names.clone(), limits)
    }
}

impl AppState {
    /// Builds the routes. Must be called on a tokio runtime, which measures its own lag.
    pub fn router(self: &Arc<Self>) -> Router {
        let state = Arc::clone(self);
        let (metrics, keys) = (Arc::clone(&self.app.metrics), Arc::clone(&self.app.keys));
        let text = Arc::new(TextState {
            service: self.app.text_service(),
            bodies: self.bodies.clone(),
            compute: self.compute.clone(),
            shutdown: self.app.shutdown.clone(),
        });
        let access_log = self.app.settings.access_log;
        tokio::spawn(self.bodies.lag().measure());
        let router = Router::new()
            .route("/v1/chat/completions", post(generate::chat))
            .route("/v1/chat/completions/batch", post(generate::chat_batch))
            .route("/v1/completions", post(generate::completion))
            .route("/v1/responses", post(responses::create))
            .route("/v1/responses/input_tokens", post(responses::input_tokens))
            .route(
                "/v1/responses/{id}",
                get(responses::retrieve).delete(responses::delete),
            )
            .route("/v1/responses/{id}/cancel", post(responses::cancel))
            .route(
                "/v1/responses/{id}/input_items",
                get(responses::input_items),
            )
            .route("/v1/messages", post(messages::create))
            .route("/v1/messages/count_tokens", post(messages::count_tokens))
            .route("/inference/v1/generate", post(inference::generate))
            .route("/v1/models", get(status::models))
            .route("/v1/models/{*name}", get(status::model))
            .route("/openapi.json", get(openapi::openapi))
            .route("/docs", get(openapi::page))
            .route("/health", get(status::health))
            .route("/ready", get(status::ready))
            .route("/version", get(status::version))
            .route("/metrics", get(status::metrics))
            .route("/server_info", get(status::server_info))
            .route("/shutdown", post(status::shutdown))
            .merge(control::routes())
            .merge(pooling::routes())
            .with_state(state)
            .merge(text_routes(text));
        let router = authorized(router, keys, ACCESS, Arc::clone(&self.callers));
        guarded(router, metrics, access_log).layer(from_fn(shaped))
    }
}
