//! What a scrape shows.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use octavo_telemetry::{Caller, EngineView, Metrics, Outcome, RankFigures};
use octavo_wire::frontend::{EngineInfo, Histogram, Stats, StepStats};

fn value(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| {
            line.strip_prefix(series)
                .is_some_and(|rest| rest.starts_with(' '))
        })
        .unwrap_or_else(|| panic!("no series {series} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The value of a series without labels of its own.
fn plain(text: &str, name: &str) -> f64 {
    value(text, &format!("octavo:{name}{{model_name=\"m\"}}"))
}

fn stats() -> Stats {
    Stats {
        running: 3,
        waiting: 2,
        free_blocks: 25,
        total_blocks: 100,
        prompt_tokens: 0,
        generated_tokens: 0,
        prefix_queries: 40,
        prefix_hits: 30,
        preemptions: 1,
        worker_restarts: 0,
        steps: 9,
        detail: Some(Box::new(StepStats {
            waiting_capacity: 2,
            waiting_deferred: 1,
            cached_blocks: 20,
            decode_tokens: 30,
            prefill_tokens: 50,
            decode_rows: 31,
            prefill_rows: 4,
            scheduler_seconds: Histogram {
                bounds: vec![0.0001, 0.001],
                counts: vec![5, 3, 1],
                total: 0.0125,
            },
            step_tokens: Histogram {
                bounds: vec![1.0, 8.0],
                counts: vec![0, 9, 0],
                total: 80.0,
            },
        })),
    }
}

fn info() -> EngineInfo {
    EngineInfo {
        model: "m".to_owned(),
        max_model_len: 10,
        vocab_size: 10,
        num_blocks: 100,
        block_tokens: 16,
        max_num_seqs: 4,
        world_size: 1,
        dtype: "bfloat16".to_owned(),
        startup_ms: 1,
        prefix_caching: true,
        model_state: None,
        cache_model: String::new(),
    }
}

#[test]
fn engine_figures_come_from_the_stats() {
    let metrics = Metrics::new("m");
    let before = metrics.encode(&EngineView::default());
    assert_eq!(plain(&before, "num_requests_running"), 0.0);
    assert_eq!(plain(&before, "engine_ready"), 0.0);

    let (stats, info) = (stats(), info());
    let text = metrics.encode(&EngineView {
        ready: true,
        stats: Some(&stats),
        info: Some(&info),
        restarts: 2,
        ranks: &[
            RankFigures {
                ready: true,
                running: 1,
                waiting: 0,
            },
            RankFigures {
                ready: false,
                running: 2,
                waiting: 2,
            },
        ],
    });
    assert_eq!(plain(&text, "engine_ready"), 1.0);
    assert_eq!(plain(&text, "num_requests_running"), 3.0);
    assert_eq!(plain(&text, "num_requests_waiting"), 2.0);
    assert_eq!(plain(&text, "kv_cache_usage_perc"), 0.75);
    assert_eq!(plain(&text, "prefix_cache_queries_total"), 40.0);
    assert_eq!(plain(&text, "prefix_cache_hits_total"), 30.0);
    assert_eq!(plain(&text, "num_preemptions_total"), 1.0);
    assert_eq!(plain(&text, "engine_restarts_total"), 2.0);
    assert_eq!(plain(&text, "kv_cache_cached_perc"), 0.2);
    let labelled = |name: &str, labels: &str| {
        value(
            &text,
            &format!("octavo:{name}{{model_name=\"m\",{labels}}}"),
        )
    };
    let reason = "num_requests_waiting_by_reason";
    assert_eq!(labelled(reason, "reason=\"capacity\""), 2.0);
    assert_eq!(labelled(reason, "reason=\"deferred\""), 1.0);
    assert_eq!(labelled("rank_ready", "engine=\"0\""), 1.0);
    assert_eq!(labelled("rank_ready", "engine=\"1\""), 0.0);
    assert_eq!(labelled("rank_requests_waiting", "engine=\"1\""), 2.0);
    assert_eq!(
        labelled("step_tokens_by_kind_total", "kind=\"decode\""),
        30.0
    );
    assert_eq!(labelled("step_rows_by_kind_total", "kind=\"prefill\""), 4.0);
    let config = "block_size=\"16\",cache_dtype=\"bfloat16\",enable_prefix_caching=\"True\",num_gpu_blocks=\"100\"";
    assert_eq!(labelled("cache_config_info", config), 1.0);
    assert_eq!(plain(&text, "iteration_tokens_total_sum"), 80.0);
    assert_eq!(plain(&text, "iteration_tokens_total_count"), 9.0);
    let bucket =
        |bound: &str| labelled("scheduler_time_seconds_bucket", &format!("le=\"{bound}\""));
    assert_eq!((bucket("0.001"), bucket("+Inf")), (8.0, 9.0));
}

#[test]
fn the_times_of_a_request_add_up_to_the_whole() {
    let metrics = Metrics::new("m");
    let arrival = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
    let mut request = metrics.request("cmpl-1".to_owned(), arrival);
    request.params(1, 64);
    request.prompt(10);
    request.cached(4);
    request.queued(Duration::from_millis(500));
    request.tokens(1);
    request.tokens(4);
    request.finish(Outcome::Length);
    let text = metrics.encode(&EngineView::default());
    let sum = |name: &str| plain(&text, &format!("{name}_sum"));
    let parts =
        ["queue", "prefill", "decode"].map(|part| sum(&format!("request_{part}_time_seconds")));
    assert_eq!(parts[0], 0.5);
    assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
    let whole = sum("e2e_request_latency_seconds");
    assert!((parts.iter().sum::<f64>() - whole).abs() < 1e-6);
    assert!((sum("request_inference_time_seconds") - (whole - 0.5)).abs() < 1e-6);
    assert!(sum("time_to_first_token_seconds") >= 2.0);
    assert_eq!(sum("request_params_max_tokens"), 64.0);
    assert_eq!(sum("request_prefill_kv_computed_tokens"), 6.0);
    let source = |source: &str| {
        let series =
            format!("octavo:prompt_tokens_by_source_total{{model_name=\"m\",source=\"{source}\"}}");
        value(&text, &series)
    };
    assert_eq!(
        (source("local_compute"), source("local_cache_hit")),
        (6.0, 4.0)
    );
}

#[test]
fn a_request_is_counted_once_by_its_outcome() {
    let metrics = Metrics::new("m");
    let mut request = metrics.request("cmpl-1".to_owned(), Instant::now());
    assert_eq!(
        plain(&metrics.encode(&EngineView::default()), "num_requests_open"),
        1.0
    );
    request.prompt(7);
    request.cached(4);
    request.tokens(1);
    request.tokens(3);
    request.finish(Outcome::Stop);
    drop(request);
    drop(metrics.request("cmpl-1".to_owned(), Instant::now()));

    let text = metrics.encode(&EngineView::default());
    let finished = |reason| {
        let series = format!(
            "octavo:request_success_total{{model_name=\"m\",finished_reason=\"{reason}\"}}"
        );
        value(&text, &series)
    };
    assert_eq!(finished("stop"), 1.0);
    assert_eq!(finished("abort"), 1.0);
    assert_eq!(finished("error"), 0.0);
    assert_eq!(plain(&text, "num_requests_open"), 0.0);
    assert_eq!(plain(&text, "prompt_tokens_total"), 7.0);
    assert_eq!(plain(&text, "prompt_tokens_cached_total"), 4.0);
    assert_eq!(plain(&text, "generation_tokens_total"), 4.0);
    assert_eq!(plain(&text, "time_to_first_token_seconds_count"), 1.0);
    assert_eq!(plain(&text, "inter_token_latency_seconds_count"), 3.0);
    assert_eq!(plain(&text, "e2e_request_latency_seconds_count"), 1.0);
}

#[test]
fn labels_that_come_from_outside_are_escaped() {
    let metrics = Metrics::new("a\"b\\c");
    metrics.http_response("/v1/models", "GET", 200);
    let text = metrics.encode(&EngineView::default());
    let series = "octavo:http_requests_total{model_name=\"a\\\"b\\\\c\",handler=\"/v1/models\",method=\"GET\",status=\"200\"}";
    assert_eq!(value(&text, series), 1.0);
}

/// A row of a table for each metric that a scrape shows: name, type, labels besides the model's name, what it tells.
fn rows(text: &str) -> Vec<String> {
    let told = |kind: &str| {
        let lines = text.lines().filter_map(move |line| {
            let rest = line.strip_prefix("# ")?.strip_prefix(kind)?;
            rest.trim_start().split_once(' ')
        });
        lines.collect::<Vec<_>>()
    };
    let labels = |name: &str| {
        let series = text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?;
            let rest = rest.strip_prefix("_bucket").unwrap_or(rest);
            rest.strip_prefix('{')?.split_once('}')
        });
        let pairs = series.map_or("", |(labels, _)| labels).split("\",");
        let names = pairs
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, _)| name);
        let own: Vec<_> = names
            .filter(|name| !["model_name", "le"].contains(name))
            .collect();
        own.join(", ")
    };
    let types = told("TYPE");
    let helps = told("HELP").into_iter().zip(types);
    helps
        .map(|((name, help), (typed, kind))| {
            assert_eq!(name, typed);
            let help = help.strip_suffix('.').unwrap_or(help);
            format!("| `{name}` | {kind} | {} | {help} |", labels(name))
        })
        .collect()
}

#[test]
fn the_list_in_the_docs_is_what_a_scrape_shows() {
    let metrics = Metrics::new("m");
    metrics.http_response("/health", "GET", 200);
    let mut request = metrics.request("cmpl-1".to_owned(), Instant::now());
    request.searched(Caller {
        request_type: "chat_completions",
        stream: true,
    });
    request.prompt(1);
    request.cached(1);
    request.finish(Outcome::Stop);
    let (stats, info) = (stats(), info());
    let rank = RankFigures {
        ready: true,
        running: 1,
        waiting: 0,
    };
    let mut shown = rows(&metrics.encode(&EngineView {
        ready: true,
        stats: Some(&stats),
        info: Some(&info),
        restarts: 0,
        ranks: &[rank, rank],
    }));
    let page = include_str!("../../../docs/observability/metrics.md");
    let mut listed: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `octavo:"))
        .map(str::to_owned)
        .collect();
    shown.sort();
    listed.sort();
    assert_eq!(listed, shown, "the list should be\n{}", shown.join("\n"));
}
