//! The registry: vLLM's metric names under the prefix `octavo:`, so that its dashboards need one replacement.
//!
//! Engine figures are those of the engine's latest `Stats` and are taken over at each scrape; request figures are
//! counted here, from what clients were sent. Handles are resolved once, never per token.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::engine::{EngineMetrics, EngineView};
use crate::request::RequestMetrics;
use crate::trace::TraceSink;

/// The `Content-Type` of what `Metrics::encode` returns.
pub const CONTENT_TYPE: &str = prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

const TTFT_S: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0,
    40.0, 80.0, 160.0, 640.0,
];
const INTER_TOKEN_S: [f64; 17] = [
    0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 20.0,
    80.0,
];
const LATENCY_S: [f64; 17] = [
    0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 480.0, 1920.0,
    7680.0,
];
const PARAM_N: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];
const TOKENS: [f64; 18] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 5e5,
    1e6,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FinishLabels {
    pub(crate) finished_reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SourceLabels {
    pub(crate) source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    pub(crate) mode: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) request_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    handler: String,
    method: &'static str,
    status: u16,
}

/// All metrics of the frontend, and the registry that writes them.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    engine: EngineMetrics,
    http: Family<HttpLabels, Counter>,
    lag: Gauge<f64, AtomicU64>,
    open_tokens: Gauge,
    request: Arc<RequestHandles>,
    /// Where traces go, if anywhere.
    traces: Option<Arc<dyn TraceSink>>,
}

/// What requests observe.
#[derive(Debug)]
pub(crate) struct RequestHandles {
    pub(crate) open: Gauge,
    pub(crate) finished: Family<FinishLabels, Counter>,
    pub(crate) prompt_tokens: Counter,
    pub(crate) cached_tokens: Counter,
    pub(crate) generation_tokens: Counter,
    pub(crate) request_prompt_tokens: Histogram,
    pub(crate) request_generation_tokens: Histogram,
    pub(crate) time_to_first_token: Histogram,
    pub(crate) inter_token: Histogram,
    pub(crate) e2e: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) prefill: Histogram,
    pub(crate) decode: Histogram,
    pub(crate) inference: Histogram,
    pub(crate) per_output_token: Histogram,
    pub(crate) computed_tokens: Histogram,
    pub(crate) max_generation_tokens: Histogram,
    pub(crate) params_n: Histogram,
    pub(crate) params_max_tokens: Histogram,
    pub(crate) by_source: Family<SourceLabels, Counter>,
    pub(crate) calls: Family<CallLabels, Counter>,
}

impl Metrics {
    /// Makes the metrics; each carries the label `model_name`.
    #[must_use]
    pub fn new(model_name: &str) -> Self {
        let labels = [("model_name".into(), model_name.to_owned().into())];
        let mut registry = Registry::with_labels(labels.into_iter());
        let engine = EngineMetrics::default();
        engine.register(&mut registry);
        let request = Arc::new(RequestHandles::register(&mut registry));
        let http = Family::default();
        registry.register(
            "octavo:http_requests",
            "HTTP responses by route, method and status",
            http.clone(),
        );
        let (lag, open_tokens) = (Gauge::default(), Gauge::default());
        registry.register(
            "octavo:frontend_lag_seconds",
            "How late the frontend's threads come to what is due",
            lag.clone(),
        );
        registry.register(
            "octavo:num_tokens_open",
            "Tokens, prompt and possible output, of the requests that clients wait for",
            open_tokens.clone(),
        );
        Self {
            registry,
            engine,
            http,
            lag,
            open_tokens,
            request,
            traces: None,
        }
    }

    /// Tells a sink of each request, too.
    #[must_use]
    pub fn with_traces(mut self, sink: Option<Arc<dyn TraceSink>>) -> Self {
        self.traces = sink;
        self
    }

    /// Makes the metrics of a server that has no engine: its HTTP responses.
    #[must_use]
    pub fn without_engine(model_name: &str) -> Self {
        let labels = [("model_name".into(), model_name.to_owned().into())];
        let mut registry = Registry::with_labels(labels.into_iter());
        let http = Family::default();
        registry.register(
            "octavo:http_requests",
            "HTTP responses by route, method and status",
            http.clone(),
        );
        Self {
            registry,
            engine: EngineMetrics::default(),
            http,
            lag: Gauge::default(),
            open_tokens: Gauge::default(),
            request: Arc::new(RequestHandles::register(&mut Registry::default())),
            traces: None,
        }
    }

    /// Follows one request, which arrived at `arrival`; `name` is for the log's line at its end. Dropped without an outcome it counts as "abort".
    #[must_use]
    pub fn request(&self, name: String, arrival: Instant) -> RequestMetrics {
        let handles = Arc::clone(&self.request);
        RequestMetrics::new(handles, name, arrival, self.traces.clone())
    }

    /// Counts one HTTP response. `handler` must be a route, not a path that the client chose.
    pub fn http_response(&self, handler: &str, method: &'static str, status: u16) {
        let labels = HttpLabels {
            handler: handler.to_owned(),
            method,
            status,
        };
        self.http.get_or_create(&labels).inc();
    }

    /// Takes over what the edge says of itself.
    pub fn edge(&self, lag: Duration, open_tokens: u64) {
        self.lag.set(lag.as_secs_f64());
        self.open_tokens
            .set(i64::try_from(open_tokens).unwrap_or(i64::MAX));
    }

    /// Writes all metrics in Prometheus's text format, with the engine as it is now.
    #[must_use]
    pub fn encode(&self, engine: &EngineView<'_>) -> String {
        self.engine.take(engine);
        self.text()
    }

    /// Writes all metrics in Prometheus's text format, as they are.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry);
        text
    }
}

impl RequestHandles {
    fn register(registry: &mut Registry) -> Self {
        let handles = Self {
            open: Gauge::default(),
            finished: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            request_prompt_tokens: Histogram::new(TOKENS),
            request_generation_tokens: Histogram::new(TOKENS),
            time_to_first_token: Histogram::new(TTFT_S),
            inter_token: Histogram::new(INTER_TOKEN_S),
            e2e: Histogram::new(LATENCY_S),
            queue: Histogram::new(LATENCY_S),
            prefill: Histogram::new(LATENCY_S),
            decode: Histogram::new(LATENCY_S),
            inference: Histogram::new(LATENCY_S),
            per_output_token: Histogram::new(INTER_TOKEN_S),
            computed_tokens: Histogram::new(TOKENS),
            max_generation_tokens: Histogram::new(TOKENS),
            params_n: Histogram::new(PARAM_N),
            params_max_tokens: Histogram::new(TOKENS),
            by_source: Family::default(),
            calls: Family::default(),
        };
        for reason in ["stop", "length", "abort", "error"] {
            // Series that exist from the start give rates from the first event on.
            let _ = handles.finished.get_or_create(&FinishLabels {
                finished_reason: reason,
            });
        }
        handles.register_counters(registry);
        handles.register_histograms(registry);
        handles
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register(
            "octavo:num_requests_open",
            "Requests that clients wait for",
            self.open.clone(),
        );
        registry.register(
            "octavo:request_success",
            "Requests that ended, by the reason of their end",
            self.finished.clone(),
        );
        registry.register(
            "octavo:prompt_tokens",
            "Prompt tokens of requests that began to answer",
            self.prompt_tokens.clone(),
        );
        registry.register(
            "octavo:prompt_tokens_cached",
            "Of these, found in the prefix cache",
            self.cached_tokens.clone(),
        );
        registry.register(
            "octavo:prompt_tokens_by_source",
            "Prompt tokens by where their KV came from",
            self.by_source.clone(),
        );
        registry.register(
            "octavo:generation_tokens",
            "Generated tokens",
            self.generation_tokens.clone(),
        );
        registry.register(
            "octavo:tool_call_parser_invocations",
            "Outputs that were searched for tool calls, once each, by whether there was one",
            self.calls.clone(),
        );
    }

    fn register_histograms(&self, registry: &mut Registry) {
        let histograms = [
            (
                "request_prompt_tokens",
                "Prompt tokens a request",
                &self.request_prompt_tokens,
            ),
            (
                "request_generation_tokens",
                "Generated tokens a request",
                &self.request_generation_tokens,
            ),
            (
                "time_to_first_token_seconds",
                "From the request's arrival to its first token",
                &self.time_to_first_token,
            ),
            (
                "inter_token_latency_seconds",
                "Between two tokens of a request",
                &self.inter_token,
            ),
            (
                "e2e_request_latency_seconds",
                "From the request's arrival to its end",
                &self.e2e,
            ),
        ];
        for (name, help, histogram) in histograms.into_iter().chain(self.phases()) {
            registry.register(format!("octavo:{name}"), help, histogram.clone());
        }
    }

    fn phases(&self) -> [(&'static str, &'static str, &Histogram); 9] {
        [
            (
                "request_queue_time_seconds",
                "In the engine, before a request's first row",
                &self.queue,
            ),
            (
                "request_prefill_time_seconds",
                "From there to the first token",
                &self.prefill,
            ),
            (
                "request_decode_time_seconds",
                "From the first token to the end",
                &self.decode,
            ),
            (
                "request_inference_time_seconds",
                "From the first row to the end",
                &self.inference,
            ),
            (
                "request_time_per_output_token_seconds",
                "Time of decode over the tokens after the first",
                &self.per_output_token,
            ),
            (
                "request_prefill_kv_computed_tokens",
                "Prompt tokens a request that were not found in the cache",
                &self.computed_tokens,
            ),
            (
                "request_max_num_generation_tokens",
                "Generated tokens of a request's longest output",
                &self.max_generation_tokens,
            ),
            (
                "request_params_n",
                "Outputs that a request asked for",
                &self.params_n,
            ),
            (
                "request_params_max_tokens",
                "Most tokens that a request asked for",
                &self.params_max_tokens,
            ),
        ]
    }
}
