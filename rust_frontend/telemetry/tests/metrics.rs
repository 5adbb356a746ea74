//! What a scrape shows.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Instant;

use octavo_telemetry::{Metrics, Outcome};
use octavo_wire::frontend::Stats;

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
        detail: None,
    }
}

#[test]
fn engine_figures_come_from_the_stats() {
    let metrics = Metrics::new("m");
    let before = metrics.encode(None, false);
    assert_eq!(plain(&before, "num_requests_running"), 0.0);
    assert_eq!(plain(&before, "engine_ready"), 0.0);

    let text = metrics.encode(Some(&stats()), true);
    assert_eq!(plain(&text, "engine_ready"), 1.0);
    assert_eq!(plain(&text, "num_requests_running"), 3.0);
    assert_eq!(plain(&text, "num_requests_waiting"), 2.0);
    assert_eq!(plain(&text, "kv_cache_usage_perc"), 0.75);
    assert_eq!(plain(&text, "prefix_cache_queries_total"), 40.0);
    assert_eq!(plain(&text, "prefix_cache_hits_total"), 30.0);
    assert_eq!(plain(&text, "num_preemptions_total"), 1.0);
}

#[test]
fn a_request_is_counted_once_by_its_outcome() {
    let metrics = Metrics::new("m");
    let mut request = metrics.request("cmpl-1".to_owned(), Instant::now());
    assert_eq!(plain(&metrics.encode(None, true), "num_requests_open"), 1.0);
    request.prompt(7);
    request.cached(4);
    request.tokens(1);
    request.tokens(3);
    request.finish(Outcome::Stop);
    drop(request);
    drop(metrics.request("cmpl-1".to_owned(), Instant::now()));

    let text = metrics.encode(None, true);
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
    let text = metrics.encode(None, true);
    let series = "octavo:http_requests_total{model_name=\"a\\\"b\\\\c\",handler=\"/v1/models\",method=\"GET\",status=\"200\"}";
    assert_eq!(value(&text, series), 1.0);
}
