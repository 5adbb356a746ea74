//! A real server on a loopback port over a scripted engine, and tonic's own client.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

#[path = "../../../http/tests/support/engine.rs"]
pub mod engine;
#[path = "../../../http/tests/support/model.rs"]
pub mod model;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use octavo_edge::{Keys, Listener, Place, Protocol, Settings, Shutdown, TokenBudget, serve};
use octavo_grpc::proto::control_service_client::ControlServiceClient;
use octavo_grpc::proto::generate_request::Prompt;
use octavo_grpc::proto::inference_service_client::InferenceServiceClient;
use octavo_grpc::proto::{GenerateRequest, SamplingParams};
use octavo_grpc::router;
use octavo_http::App;
use octavo_render::Renderer;
use octavo_telemetry::Metrics;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use engine::Script;

/// No test takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test, with a time limit.
pub fn within<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, test)
            .await
            .expect("the test hangs")
    })
}

pub struct Server {
    pub address: SocketAddr,
    pub script: Arc<Script>,
    pub shutdown: Shutdown,
    task: JoinHandle<std::io::Result<()>>,
    _model: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(Settings::default(), Keys::default(), Duration::ZERO).await
    }

    pub async fn start_with(settings: Settings, keys: Keys, patience: Duration) -> Self {
        let model = model::folder();
        let renderer = Renderer::load(model.path(), Some(1)).unwrap();
        let script = Arc::new(Script::default());
        let shutdown = Shutdown::default();
        let app = App {
            generate: Arc::clone(&script) as Arc<_>,
            renderer: Arc::new(renderer),
            metrics: Arc::new(Metrics::new("test")),
            model_names: vec!["test".to_owned()],
            priorities: true,
            request_timings: false,
            pooling: None,
            keys: Arc::new(keys),
            tokens: Arc::new(TokenBudget::new(settings.max_open_tokens)),
            about: serde_json::Value::Null,
            responses: None,
            settings: settings.clone(),
            shutdown: shutdown.clone(),
        };
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = Listener::new(socket).unwrap().speaking(Protocol::Http2);
        let Place::Tcp(address) = *listener.place() else {
            unreachable!("a TCP socket")
        };
        let ending = shutdown.clone();
        let task = tokio::spawn(async move {
            let router = router(&app.shared()).unwrap();
            serve(listener, router, &settings, &ending, patience).await
        });
        Self {
            address,
            script,
            shutdown,
            task,
            _model: model,
        }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap()
    }

    pub async fn channel(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }

    pub async fn inference(&self) -> InferenceServiceClient<Channel> {
        InferenceServiceClient::new(self.channel().await)
    }

    pub async fn control(&self) -> ControlServiceClient<Channel> {
        ControlServiceClient::new(self.channel().await)
    }

    /// Waits until the server has ended.
    pub async fn ended(self) {
        self.task.await.unwrap().unwrap();
    }
}

/// A request to continue a text.
pub fn ask(text: &str) -> GenerateRequest {
    GenerateRequest {
        prompt: Some(Prompt::Text(text.to_owned())),
        sampling_params: Some(SamplingParams {
            max_tokens: Some(8),
            ..SamplingParams::default()
        }),
        ..GenerateRequest::default()
    }
}
