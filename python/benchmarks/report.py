"""A run's result as a table to read and as JSON with the keys of `vllm bench serve`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octavo.benchmarks.stats import summarize

if TYPE_CHECKING:
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.record import Record
    from octavo.benchmarks.runner import Run
    from octavo.benchmarks.stats import Metrics, Summary

__all__ = ["DETAILS", "client_cost", "percentile_word", "result", "table"]

#: Keys with an entry for each request; written only with --save-detailed.
DETAILS = (
    "input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "generated_texts",
    "errors",
)  # fmt: skip

_HEADERS = {
    "ttft": "TTFT (ms)",
    "tpot": "TPOT (ms)",
    "itl": "ITL (ms)",
    "e2el": "E2EL (ms)",
    "client_queue_time": "Client queue (ms)",
    "e2el_including_client_queue": "E2EL + queue (ms)",
}
#: A client that takes more of a core than this is likely to have bent the result.
BUSY = 0.5


def percentile_word(p: float) -> str:
    """Return a percentile as keys and heads have it: p99, p99.9."""
    return f"p{int(p)}" if p == int(p) else f"p{p}"


def client_cost(run: Run, metrics: Metrics) -> dict[str, float | None]:
    """Return what the client took: CPU seconds in all, by request and by output token, and its share of one core."""
    cpu = run.cost.cpu_seconds
    tokens = metrics.total_output_tokens
    return {
        "client_cpu_seconds": cpu,
        "client_cpu_us_per_request": 1e6 * cpu / len(run.records) if run.records else None,
        "client_cpu_us_per_token": 1e6 * cpu / tokens if tokens else None,
        "client_cpu_share": cpu / metrics.duration if metrics.duration > 0 else None,
        "client_worst_send_lag_ms": 1000 * run.cost.worst_lag,
    }


def result(options: ServeOptions, model: str, tokenizer: str, date: str, run: Run, metrics: Metrics) -> dict[str, Any]:
    """Build the whole JSON object. Figures without values are null; so are times of failed requests."""
    ramp = options.arrivals.ramp_up
    found: dict[str, Any] = {
        "date": date,
        "endpoint_type": options.backend,
        "backend": options.backend,
        "label": options.label,
        "model_id": model,
        "tokenizer_id": tokenizer,
        "num_prompts": options.num_prompts,
        "request_rate": options.request_rate if math.isfinite(options.request_rate) else "inf",
        "burstiness": options.burstiness if math.isfinite(options.burstiness) else "inf",
        "max_concurrency": options.max_concurrency,
    }
    if ramp is not None:
        names = {"strategy": ramp.strategy, "start_rps": ramp.start, "end_rps": ramp.end}
        found |= {f"ramp_up_{name}": value for name, value in names.items()}
    found |= {
        "duration": metrics.duration,
        "completed": metrics.completed,
        "failed": metrics.failed,
        "failures": dict(metrics.failures),
        "total_input_tokens": metrics.total_input_tokens,
        "total_output_tokens": metrics.total_output_tokens,
        "output_tokens_from": dict(metrics.tokens_from),
        "longer_than_asked": metrics.longer,
        "shorter_than_asked": metrics.shorter,
        "request_throughput": metrics.request_throughput,
        "request_goodput": metrics.request_goodput,
        "output_throughput": metrics.output_throughput,
        "total_token_throughput": metrics.total_token_throughput,
        "max_output_tokens_per_s": metrics.max_output_tokens_per_s,
        "max_concurrent_requests": metrics.max_concurrent_requests,
        "tokens_per_chunk": metrics.total_output_tokens / metrics.chunks if metrics.chunks else None,
    }
    for name in options.reported:
        found |= _latency(name, metrics.latencies[name], options.percentiles)
    found |= client_cost(run, metrics)
    if options.probe_request_rate:
        found |= _probes(run.probes)
    found |= _details(run.records, run.begin)
    return found


def _latency(name: str, summary: Summary | None, percentiles: Sequence[float]) -> dict[str, float | None]:
    words = ("mean", "median", "std", *(percentile_word(p) for p in percentiles))
    values: dict[str, float | None] = dict.fromkeys(words)
    if summary is not None:
        values = {"mean": summary.mean, "median": summary.median, "std": summary.std}
        values |= {percentile_word(p): summary.percentiles[p] for p in percentiles}
    return {f"{word}_{name}_ms": None if value is None else 1000 * value for word, value in values.items()}


def _probes(probes: Sequence[Record]) -> dict[str, float | None]:
    latencies = sorted(1000 * r.latency for r in probes if r.latency is not None)
    summary = summarize(latencies, (99.0,))
    return {
        "probe_completed": len(latencies),
        "probe_failed": len(probes) - len(latencies),
        "probe_median_e2el_ms": None if summary is None else summary.median,
        "probe_p99_e2el_ms": None if summary is None else summary.percentiles[99.0],
        "probe_max_e2el_ms": latencies[-1] if latencies else None,
    }


def _details(records: Sequence[Record], begin: float) -> dict[str, Any]:
    return {
        "input_lens": [r.prompt_tokens for r in records],
        "output_lens": [r.output_tokens for r in records],
        "ttfts": [r.ttft for r in records],
        "itls": [list(r.itl) for r in records],
        "latencies": [r.latency for r in records],
        "start_times": [r.start - begin for r in records],
        "queue_times": [r.queue_time for r in records],
        "generated_texts": [r.text for r in records],
        "errors": ["" if r.failure is None else f"{r.failure.kind}: {r.failure.message}" for r in records],
    }


def table(found: dict[str, Any], metrics: Metrics, options: ServeOptions) -> str:
    """Lay the result out for a terminal."""
    lines = [
        f"{'Successful requests':<34}{metrics.completed}",
        f"{'Failed requests':<34}{metrics.failed}",
        *(f"{'  ' + kind:<34}{count}" for kind, count in metrics.failures.items()),
        f"{'Benchmark duration (s)':<34}{metrics.duration:.2f}",
        f"{'Input tokens':<34}{metrics.total_input_tokens}",
        f"{'Output tokens':<34}{metrics.total_output_tokens}{_doubt(metrics)}",
        f"{'Request throughput (req/s)':<34}{metrics.request_throughput:.2f}",
        f"{'Output token throughput (tok/s)':<34}{metrics.output_throughput:.2f}",
        f"{'Total token throughput (tok/s)':<34}{metrics.total_token_throughput:.2f}",
        f"{'Peak output tokens in a second':<34}{metrics.max_output_tokens_per_s:.0f}",
        f"{'Peak concurrent requests':<34}{metrics.max_concurrent_requests}",
    ]
    if metrics.request_goodput is not None:
        lines.append(f"{'Request goodput (req/s)':<34}{metrics.request_goodput:.2f}")
    words = ["mean", "median", *(percentile_word(p) for p in options.percentiles)]
    lines += ["", f"{'':<20}" + "".join(f"{word:>11}" for word in words)]
    for name in options.reported:
        cells = (found[f"{word}_{name}_ms"] for word in words)
        lines.append(f"{_HEADERS[name]:<20}" + "".join(f"{_number(cell):>11}" for cell in cells))
    if options.probe_request_rate:
        told = "  ".join(f"{word} {_number(found[f'probe_{word}_e2el_ms'])}" for word in ("median", "p99", "max"))
        lines.append(f"Probes: {found['probe_completed']} done, {found['probe_failed']} failed; E2EL (ms) {told}")
    return "\n".join([*lines, "", *_length_lines(metrics, options), *_client_lines(found)])


def _doubt(metrics: Metrics) -> str:
    other = {source: count for source, count in metrics.tokens_from.items() if source != "usage"}
    if not other:
        return ""
    words = {"tokenizer": "counted by the tokenizer", "chunks": "one a chunk assumed"}
    return "  (no usage: " + ", ".join(f"{words[s]} in {n} answers" for s, n in other.items()) + ")"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _length_lines(metrics: Metrics, options: ServeOptions) -> list[str]:
    """Tell when the answers were not what was asked for: such a run must not be compared with another."""
    lines = []
    if metrics.longer:
        name = "max_completion_tokens" if options.backend == "openai-chat" else "max_tokens"
        lines.append(f"{metrics.longer} answers were longer than asked: the server ignores {name} (see --extra-body).")
    if metrics.shorter and options.ignore_eos:
        lines.append(f"{metrics.shorter} answers were shorter than asked: the server ignores ignore_eos.")
    return lines


def _client_lines(found: dict[str, Any]) -> list[str]:
    share = found["client_cpu_share"] or 0.0
    lines = [
        f"Client: {_number(found['client_cpu_us_per_request'])} us of CPU a request, "
        f"{_number(found['client_cpu_us_per_token'])} us a token; busy for {100 * share:.1f}% of one core; "
        f"requests sent at most {found['client_worst_send_lag_ms']:.1f} ms late"
    ]
    if share > BUSY:
        lines.append(
            "The client was so busy that it may have bent these figures: run it on another machine, or lower the load."
        )
    return lines
