//! A real server on a loopback port over a scripted engine, and a client that sees every byte.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod answer;
pub mod client;
pub mod engine;
pub mod message;
pub mod model;
pub mod response;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use octavo_edge::{Keys, Listener, Place, Settings, Shutdown, TokenBudget, serve};
use octavo_http::{App, PoolingModel, ResponseStore, StoreLimits};
use octavo_render::{ParserSettings, Renderer};
use octavo_telemetry::{EngineView, Metrics};
use serde_json::Value;
use tokio::task::JoinHandle;

use client::Client;
use engine::Script;

/// How much is kept of responses.
const LIMITS: StoreLimits = StoreLimits {
    max_bytes: 1 << 20,
    max_age: Duration::from_secs(3600),
};

/// No test takes longer.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Runs a test, with a time limit.
pub fn within<T>(test: impl Future<Output = T>) -> T {
    within_time(LIMIT, test)
}

/// Runs a test, with a time limit of its own.
pub fn within_time<T>(limit: Duration, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(limit, test)
            .await
            .expect("the test hangs")
    })
}

pub struct Server {
    pub address: SocketAddr,
    pub script: Arc<Script>,
    pub metrics: Arc<Metrics>,
    pub shutdown: Shutdown,
    task: JoinHandle<std::io::Result<()>>,
    _model: tempfile::TempDir,
}

impl Server {
    /// Starts a server that serves the names "test" and "alias", with an engine that is ready.
    pub async fn start() -> Self {
        Self::start_with(Settings::default(), Duration::ZERO).await
    }

    pub async fn start_with(settings: Settings, patience: Duration) -> Self {
        let none = ParserSettings::default();
        Self::start_all(model::folder(), settings, patience, &none).await
    }

    /// Starts a server that parses, and lets the model decide about calls.
    pub async fn parsing(tool: Option<&str>, reasoning: Option<&str>) -> Self {
        let parsers = ParserSettings {
            tool: tool.map(str::to_owned),
            reasoning: reasoning.map(str::to_owned),
            auto_tool_choice: true,
            format_files: Vec::new(),
        };
        Self::start_parsing(model::folder(), &parsers).await
    }

    pub async fn start_parsing(model: tempfile::TempDir, parsers: &ParserSettings) -> Self {
        Self::start_all(model, Settings::default(), Duration::ZERO, parsers).await
    }

    /// Starts a server that asks for keys.
    pub async fn locked(keys: Keys) -> Self {
        Self::locked_with(keys, Settings::default()).await
    }

    pub async fn locked_with(keys: Keys, settings: Settings) -> Self {
        let none = ParserSettings::default();
        Self::start_keyed(model::folder(), settings, Duration::ZERO, &none, keys, None).await
    }

    /// Starts a server of a model that gives vectors.
    pub async fn pooling(model: PoolingModel) -> Self {
        let (settings, none) = (Settings::default(), ParserSettings::default());
        let keys = Keys::default();
        Self::start_keyed(
            model::folder(),
            settings,
            Duration::ZERO,
            &none,
            keys,
            Some(model),
        )
        .await
    }

    async fn start_all(
        model: tempfile::TempDir,
        settings: Settings,
        patience: Duration,
        parsers: &ParserSettings,
    ) -> Self {
        Self::start_keyed(model, settings, patience, parsers, Keys::default(), None).await
    }

    async fn start_keyed(
        model: tempfile::TempDir,
        settings: Settings,
        patience: Duration,
        parsers: &ParserSettings,
        keys: Keys,
        pooling: Option<PoolingModel>,
    ) -> Self {
        let renderer = Renderer::load(model.path(), Some(1)).unwrap();
        let script = Arc::new(Script::default());
        let metrics = Arc::new(Metrics::new("test"));
        let shutdown = Shutdown::default();
        let store = ResponseStore::open(None, LIMITS).unwrap();
        let app = App {
            generate: Arc::clone(&script) as Arc<_>,
            renderer: Arc::new(renderer.with_parsers(parsers).unwrap()),
            metrics: Arc::clone(&metrics),
            model_names: vec!["test".to_owned(), "alias".to_owned()],
            priorities: true,
            request_timings: false,
            pooling,
            responses: Some(Arc::new(store)),
            keys: Arc::new(keys),
            tokens: Arc::new(TokenBudget::new(settings.max_open_tokens)),
            about: serde_json::Value::Null,
            settings: settings.clone(),
            shutdown: shutdown.clone(),
        };
        let listener = Listener::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let Place::Tcp(address) = *listener.place() else {
            unreachable!("a TCP socket")
        };
        let ending = shutdown.clone();
        let task = tokio::spawn(async move {
            serve(listener, app.into_router(), &settings, &ending, patience).await
        });
        Self {
            address,
            script,
            metrics,
            shutdown,
            task,
            _model: model,
        }
    }

    pub async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Waits until the server has ended.
    pub async fn ended(self) {
        self.task.await.unwrap().unwrap();
    }

    /// The value of a series without labels of its own.
    pub fn metric(&self, name: &str) -> f64 {
        self.series(&format!("octavo:{name}{{model_name=\"test\"}}"))
    }

    /// How many requests have ended for a reason.
    pub fn finished(&self, reason: &str) -> f64 {
        let labels = format!("model_name=\"test\",finished_reason=\"{reason}\"");
        self.series(&format!("octavo:request_success_total{{{labels}}}"))
    }

    /// The value of the series that begins so, if there is one.
    pub fn find_series(&self, head: &str) -> Option<f64> {
        let text = self.metrics.encode(&EngineView::default());
        let line = text.lines().find(|line| line.starts_with(head))?;
        Some(line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn series(&self, head: &str) -> f64 {
        self.find_series(head)
            .unwrap_or_else(|| panic!("no series {head}"))
    }
}

/// A body with further fields.
pub fn with_fields(mut body: Value, fields: &Value) -> Value {
    let all = body.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    body
}

/// Waits until `check` holds.
pub async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
