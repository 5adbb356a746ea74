//! Traces over OTLP/HTTP: one span for each output with vLLM's attributes, and below it what the engine did, by the
//! engine's own times. Spans are made when an output has ended, so that running ones cost nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use octavo_telemetry::{Outcome, TraceSink, Traced};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;

use crate::otlp_client::{OtlpClient, Target};

/// The variable that says how vLLM exports; only one value works here.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";

/// Spans that wait get so long to leave at the end.
const LAST: Duration = Duration::from_secs(3);

/// Sends spans to a collector.
#[derive(Debug)]
pub(crate) struct Otlp {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    model: String,
}

/// Checks an endpoint without sending anything.
///
/// # Errors
/// What is wrong with it, and what to give instead.
pub(crate) fn check(endpoint: &str) -> Result<Target, String> {
    let protocol = std::env::var(PROTOCOL).unwrap_or_default();
    if !["", "http/protobuf"].contains(&protocol.as_str()) {
        return Err(format!(
            "{PROTOCOL} is {protocol:?}, and traces are sent by http/protobuf alone; unset it, and give \
             --otlp-traces-endpoint the collector's HTTP address, such as http://127.0.0.1:4318/v1/traces"
        ));
    }
    Target::parse(endpoint)
}

impl Otlp {
    /// Must be called on a tokio runtime, which sends the spans.
    ///
    /// # Errors
    /// The endpoint is none.
    pub(crate) fn start(endpoint: &str, model: &str) -> Result<Arc<Self>, String> {
        let target = check(endpoint)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(target.url())
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(OtlpClient::new(target, Handle::current()))
            .build()
            .map_err(|error| format!("--otlp-traces-endpoint {endpoint}: {error}"))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("octavo");
        }
        let version = KeyValue::new("service.version", octavo_wire::VERSION);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.with_attribute(version).build())
            .with_batch_exporter(exporter)
            .build();
        Ok(Arc::new(Self {
            tracer: provider.tracer("octavo"),
            provider,
            model: model.to_owned(),
        }))
    }

    /// Sends what waits. Blocks for a few seconds at most.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST) {
            tracing::warn!("the last traces are lost: {error}");
        }
    }

    fn attributes(&self, traced: &Traced<'_>) -> Vec<KeyValue> {
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let asked = &traced.asked;
        let mut all = vec![
            KeyValue::new("gen_ai.request.id", traced.name.to_owned()),
            KeyValue::new("gen_ai.response.model", self.model.clone()),
            KeyValue::new("gen_ai.request.n", i64::from(asked.n)),
            KeyValue::new("gen_ai.request.max_tokens", count(asked.max_tokens)),
            KeyValue::new("gen_ai.request.temperature", asked.temperature),
            KeyValue::new("gen_ai.request.top_p", asked.top_p),
            KeyValue::new("gen_ai.usage.prompt_tokens", count(traced.prompt_tokens)),
            KeyValue::new(
                "gen_ai.usage.completion_tokens",
                count(traced.generated_tokens),
            ),
            KeyValue::new("gen_ai.latency.e2e", traced.end.as_secs_f64()),
            KeyValue::new("gen_ai.response.finish_reason", traced.outcome.label()),
        ];
        let mut time = |name: &'static str, time: Duration| {
            all.push(KeyValue::new(name, time.as_secs_f64()));
        };
        if let Some(started) = traced.started {
            time("gen_ai.latency.time_in_queue", started);
            time(
                "gen_ai.latency.time_in_model_inference",
                traced.end.saturating_sub(started),
            );
        }
        if let Some(first) = traced.first_token {
            time("gen_ai.latency.time_to_first_token", first);
            let started = traced.started.unwrap_or_default();
            time(
                "gen_ai.latency.time_in_model_prefill",
                first.saturating_sub(started),
            );
            time(
                "gen_ai.latency.time_in_model_decode",
                traced.end.saturating_sub(first),
            );
        }
        all
    }

    /// A span of the engine's work below the output's.
    fn phase(&self, context: &Context, name: &'static str, from: SystemTime, to: SystemTime) {
        let builder = self.tracer.span_builder(name).with_kind(SpanKind::Internal);
        let mut span = builder
            .with_start_time(from)
            .start_with_context(&self.tracer, context);
        span.end_with_timestamp(to);
    }
}

impl TraceSink for Otlp {
    fn tell(&self, traced: &Traced<'_>) {
        let mut context = Context::new();
        if let Some(parent) = traced.parent {
            let (trace, span) = (TraceId::from(parent.trace_id), SpanId::from(parent.span_id));
            let flags = TraceFlags::new(parent.flags);
            let remote = SpanContext::new(trace, span, flags, true, TraceState::default());
            context = context.with_remote_span_context(remote);
        }
        let builder = self.tracer.span_builder("llm_request");
        let mut span = builder
            .with_kind(SpanKind::Server)
            .with_start_time(traced.arrival)
            .with_attributes(self.attributes(traced))
            .start_with_context(&self.tracer, &context);
        if traced.outcome == Outcome::Error {
            span.set_status(Status::error("the request failed"));
        }
        let below = context.with_remote_span_context(span.span_context().clone());
        let end = traced.arrival + traced.end;
        if let Some(started) = traced.started.map(|started| traced.arrival + started) {
            let first = traced
                .first_token
                .map_or(end, |first| traced.arrival + first);
            self.phase(&below, "engine.queue", traced.arrival, started);
            self.phase(&below, "engine.prefill", started, first);
            if traced.first_token.is_some() {
                self.phase(&below, "engine.decode", first, end);
            }
        }
        span.end_with_timestamp(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked_by_name() {
        for (given, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector/", "http://collector/v1/traces"),
            ("http://[::1]:4318/a/b", "http://[::1]:4318/a/b"),
        ] {
            assert_eq!(check(given).map(|target| target.url()).as_deref(), Ok(url));
        }
        for wrong in [
            "",
            "collector:4318",
            "https://collector",
            "grpc://a:1",
            "http://",
            "http://a:x",
        ] {
            let error = check(wrong).unwrap_err();
            assert!(
                error.contains("--otlp-traces-endpoint") && error.contains("http://127"),
                "{error}"
            );
        }
    }
}
