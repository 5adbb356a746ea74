//! What an engine says of itself, under vLLM's names where there are some: taken over at each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use octavo_wire::frontend::{EngineInfo, Stats, StepStats};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::latest::Latest;

/// An engine as the frontend knows it.
#[derive(Debug, Default, Clone, Copy)]
pub struct EngineView<'a> {
    /// Whether one is ready now.
    pub ready: bool,
    /// Its latest figures; `None` before the first.
    pub stats: Option<&'a Stats>,
    /// `None` until one was ready.
    pub info: Option<&'a EngineInfo>,
    /// How often its process came back.
    pub restarts: u64,
    /// Of each of its cores, by data-parallel rank; empty: there is nothing to tell apart.
    pub ranks: &'a [RankFigures],
}

/// What is told of one of several engine cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankFigures {
    /// Whether it serves requests now.
    pub ready: bool,
    /// Requests that it runs.
    pub running: u64,
    /// Requests that wait in it.
    pub waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RankLabels {
    engine: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    block_size: u64,
    cache_dtype: String,
    enable_prefix_caching: &'static str,
    num_gpu_blocks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct EngineMetrics {
    ready: Gauge,
    running: Gauge,
    waiting: Gauge,
    waiting_by_reason: Family<ReasonLabels, Gauge>,
    rank_ready: Family<RankLabels, Gauge>,
    rank_running: Family<RankLabels, Gauge>,
    rank_waiting: Family<RankLabels, Gauge>,
    kv_usage: Gauge<f64, AtomicU64>,
    kv_cached: Gauge<f64, AtomicU64>,
    cache_config: Family<CacheLabels, Gauge>,
    prefix_queries: Counter,
    prefix_hits: Counter,
    preemptions: Counter,
    worker_restarts: Counter,
    engine_restarts: Counter,
    steps: Counter,
    step_tokens_by_kind: Family<KindLabels, Counter>,
    step_rows_by_kind: Family<KindLabels, Counter>,
    step_tokens: Latest,
    scheduler_seconds: Latest,
}

impl EngineMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.register_gauges(registry);
        self.register_counters(registry);
        registry.register(
            "octavo:iteration_tokens_total",
            "Tokens computed in one step",
            self.step_tokens.clone(),
        );
        registry.register(
            "octavo:scheduler_time_seconds",
            "What the engine core spends on one step: to plan it and to apply its result",
            self.scheduler_seconds.clone(),
        );
    }

    fn register_gauges(&self, registry: &mut Registry) {
        registry.register(
            "octavo:engine_ready",
            "Whether an engine is ready",
            self.ready.clone(),
        );
        registry.register(
            "octavo:num_requests_running",
            "Requests that the engine runs",
            self.running.clone(),
        );
        registry.register(
            "octavo:num_requests_waiting",
            "Requests that wait in the engine",
            self.waiting.clone(),
        );
        registry.register(
            "octavo:num_requests_waiting_by_reason",
            "Of these, by what they wait for: capacity (places, blocks, budget), deferred (blocks that another request computes)",
            self.waiting_by_reason.clone(),
        );
        for (name, help, family) in [
            (
                "octavo:rank_ready",
                "Whether an engine core serves requests, by data-parallel rank",
                &self.rank_ready,
            ),
            (
                "octavo:rank_requests_running",
                "Requests that an engine core runs, by data-parallel rank",
                &self.rank_running,
            ),
            (
                "octavo:rank_requests_waiting",
                "Requests that wait in an engine core, by data-parallel rank",
                &self.rank_waiting,
            ),
        ] {
            registry.register(name, help, family.clone());
        }
        registry.register(
            "octavo:kv_cache_usage_perc",
            "Used part of the KV blocks; 1 is all of them",
            self.kv_usage.clone(),
        );
        registry.register(
            "octavo:kv_cache_cached_perc",
            "Part of the KV blocks that nobody uses and whose content can still be found",
            self.kv_cached.clone(),
        );
        registry.register(
            "octavo:cache_config_info",
            "How the KV cache is set up",
            self.cache_config.clone(),
        );
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            (
                "prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache",
                &self.prefix_queries,
            ),
            (
                "prefix_cache_hits",
                "Prompt tokens found in the prefix cache",
                &self.prefix_hits,
            ),
            (
                "num_preemptions",
                "Requests whose blocks were taken away",
                &self.preemptions,
            ),
            (
                "worker_restarts",
                "Restarts of the worker group",
                &self.worker_restarts,
            ),
            (
                "engine_restarts",
                "Restarts of the engine core",
                &self.engine_restarts,
            ),
            ("engine_steps", "Steps that the engine ran", &self.steps),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("octavo:{name}"), help, counter.clone());
        }
        registry.register(
            "octavo:step_tokens_by_kind",
            "Tokens that steps computed: decode (one known token a row), prefill (the rest)",
            self.step_tokens_by_kind.clone(),
        );
        registry.register(
            "octavo:step_rows_by_kind",
            "Rows of steps: decode (one known token), prefill (the rest)",
            self.step_rows_by_kind.clone(),
        );
    }

    /// Takes over what is known now. Counters of a core that was restarted count from 0 again, which Prometheus reads as
    /// a reset.
    pub(crate) fn take(&self, view: &EngineView<'_>) {
        self.ready.set(i64::from(view.ready));
        store(&self.engine_restarts, view.restarts);
        if let Some(info) = view.info {
            let labels = CacheLabels {
                block_size: info.block_tokens,
                cache_dtype: info.dtype.clone(),
                enable_prefix_caching: if info.prefix_caching { "True" } else { "False" },
                num_gpu_blocks: info.num_blocks,
            };
            self.cache_config.get_or_create(&labels).set(1);
        }
        self.take_ranks(view.ranks);
        let Some(stats) = view.stats else { return };
        let used = stats.total_blocks.saturating_sub(stats.free_blocks);
        self.running.set(as_gauge(stats.running));
        self.waiting.set(as_gauge(stats.waiting));
        self.kv_usage.set(ratio(used, stats.total_blocks));
        for (counter, value) in [
            (&self.prefix_queries, stats.prefix_queries),
            (&self.prefix_hits, stats.prefix_hits),
            (&self.preemptions, stats.preemptions),
            (&self.worker_restarts, stats.worker_restarts),
            (&self.steps, stats.steps),
        ] {
            store(counter, value);
        }
        if let Some(detail) = &stats.detail {
            self.kv_cached
                .set(ratio(detail.cached_blocks, stats.total_blocks));
            self.take_detail(detail);
        }
    }

    fn take_ranks(&self, ranks: &[RankFigures]) {
        for (engine, figures) in (0..).zip(ranks) {
            let labels = RankLabels { engine };
            for (family, value) in [
                (&self.rank_ready, i64::from(figures.ready)),
                (&self.rank_running, as_gauge(figures.running)),
                (&self.rank_waiting, as_gauge(figures.waiting)),
            ] {
                family.get_or_create(&labels).set(value);
            }
        }
    }

    fn take_detail(&self, detail: &StepStats) {
        for (reason, count) in [
            ("capacity", detail.waiting_capacity),
            ("deferred", detail.waiting_deferred),
        ] {
            let labels = ReasonLabels { reason };
            let gauge = self.waiting_by_reason.get_or_create(&labels);
            gauge.set(as_gauge(count));
        }
        for (kind, tokens, rows) in [
            ("decode", detail.decode_tokens, detail.decode_rows),
            ("prefill", detail.prefill_tokens, detail.prefill_rows),
        ] {
            let labels = KindLabels { kind };
            store(&self.step_tokens_by_kind.get_or_create(&labels), tokens);
            store(&self.step_rows_by_kind.get_or_create(&labels), rows);
        }
        self.step_tokens.set(&detail.step_tokens);
        self.scheduler_seconds.set(&detail.scheduler_seconds);
    }
}

fn store(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

fn as_gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "block counts are far below 2^53"
)]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
