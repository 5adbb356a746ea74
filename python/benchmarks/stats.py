"""Statistics of a run: pure functions from records to numbers.

What each figure means is what `vllm bench serve` means by it. Differences, all in favour of the truth: a latency
without values is None rather than 0, and the peak of output tokens counts tokens rather than chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from octavo.benchmarks.record import Record

__all__ = ["LATENCIES", "Metrics", "Summary", "is_good", "measure", "peak_concurrency", "peak_token_rate", "summarize"]

#: The latencies of a request that can be reported, in the order of reports.
LATENCIES = ("ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue")


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, median, standard deviation (of the population) and percentiles (linear interpolation) in seconds."""

    count: int
    mean: float
    median: float
    std: float
    percentiles: Mapping[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a run of `duration` seconds did. Failed requests count in `failed` and `failures`, nowhere else."""

    duration: float
    completed: int
    failed: int
    failures: Mapping[str, int]  # by kind, most frequent first
    total_input_tokens: int
    total_output_tokens: int
    tokens_from: Mapping[str, int]  # requests by where their count of output tokens comes from
    longer: int  # answers with more tokens than asked
    shorter: int  # answers with fewer: they ended by themselves
    chunks: int  # chunks with tokens
    request_throughput: float  # completed requests per second
    request_goodput: float | None  # those that kept every objective; None without objectives
    output_throughput: float  # output tokens per second
    total_token_throughput: float  # input and output tokens per second
    max_output_tokens_per_s: float
    max_concurrent_requests: int
    latencies: Mapping[str, Summary | None]  # by name of LATENCIES


def summarize(values: Iterable[float], percentiles: Sequence[float] = ()) -> Summary | None:
    """Summarize values in seconds; None where there are none."""
    array = np.fromiter(values, dtype=np.float64)
    if array.size == 0:
        return None
    return Summary(
        count=int(array.size),
        mean=float(array.mean()),
        median=float(np.median(array)),
        std=float(array.std()),
        percentiles={p: float(np.percentile(array, p)) for p in percentiles},
    )


def is_good(record: Record, objectives: Mapping[str, float]) -> bool:
    """Whether a request kept every objective (seconds by `ttft`, `tpot`, `e2el`); one token has a TPOT of 0."""
    if record.failure is not None or record.ttft is None or record.latency is None:
        return False
    seen = {"ttft": record.ttft, "tpot": record.tpot or 0.0, "e2el": record.latency}
    return all(seen[name] <= limit for name, limit in objectives.items())


def _latencies(done: Sequence[Record]) -> dict[str, list[float]]:
    return {
        "ttft": [r.ttft for r in done if r.ttft is not None],
        "tpot": [tpot for r in done if (tpot := r.tpot) is not None],
        "itl": [gap for r in done for gap in r.itl],
        "e2el": [r.latency for r in done if r.latency is not None],
        "client_queue_time": [r.queue_time for r in done],
        "e2el_including_client_queue": [r.latency + r.queue_time for r in done if r.latency is not None],
    }


def measure(
    records: Sequence[Record],
    begin: float,
    percentiles: Sequence[float] = (90.0, 99.0),
    objectives: Mapping[str, float] | None = None,
) -> Metrics:
    """Measure a run that began at `begin`, on the records' clock, and ended when its last request did.

    `objectives` are goodput's, in seconds. The wait before the first request belongs to the run: a rate is a rate.
    """
    done = [r for r in records if r.failure is None]
    duration = max((r.finished for r in records), default=begin) - begin
    inputs = sum(r.prompt_tokens for r in done)
    outputs = sum(r.output_tokens for r in done)

    def rate(count: float) -> float:
        return count / duration if duration > 0 else 0.0

    failures = Counter(r.failure.kind for r in records if r.failure is not None)
    return Metrics(
        duration=duration,
        completed=len(done),
        failed=len(records) - len(done),
        failures=dict(failures.most_common()),
        total_input_tokens=inputs,
        total_output_tokens=outputs,
        tokens_from=dict(Counter(r.tokens_from for r in done)),
        longer=sum(max(_counted(r), 1 + len(r.itl)) > r.asked_tokens > 0 for r in done),
        shorter=sum(0 < _counted(r) < r.asked_tokens for r in done),
        chunks=sum(1 + len(r.itl) for r in done),
        request_throughput=rate(len(done)),
        request_goodput=rate(sum(is_good(r, objectives) for r in done)) if objectives else None,
        output_throughput=rate(outputs),
        total_token_throughput=rate(inputs + outputs),
        max_output_tokens_per_s=peak_token_rate(done),
        max_concurrent_requests=peak_concurrency(records),
        latencies={name: summarize(values, percentiles) for name, values in _latencies(done).items()},
    )


def _counted(record: Record) -> int:
    """Return the server's own count; 0 where it gave none: a text may well have fewer tokens than it was made of."""
    return record.output_tokens if record.tokens_from == "usage" else 0


def peak_token_rate(done: Sequence[Record]) -> float:
    """Return the output tokens of the best whole second since the first start; a request's chunks weigh the same."""
    times: list[float] = []
    weights: list[float] = []
    for record in done:
        if record.ttft is None:
            continue
        at = record.start + record.ttft
        chunks = [at, *(at := at + gap for gap in record.itl)]
        times += chunks
        weights += [record.output_tokens / len(chunks)] * len(chunks)
    if not times:
        return 0.0
    seconds = (np.asarray(times) - min(r.start for r in done)).astype(np.int64)
    return float(np.bincount(seconds, weights=weights).max())


def peak_concurrency(records: Sequence[Record]) -> int:
    """Return how many requests were open at once at most; one that ends when another starts is not open with it."""
    events = sorted([(r.start, 1) for r in records] + [(r.finished, -1) for r in records])
    open_now = most = 0
    for _, change in events:
        open_now += change
        most = max(most, open_now)
    return most
