"""Statistics: each test fails if a figure means something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.benchmarks.record import Failure, Record
from octavo.benchmarks.stats import is_good, measure, peak_concurrency, peak_token_rate, summarize


def done(start: float, ttft: float, itl: tuple[float, ...] = (), tokens: int | None = None, **more: Any) -> Record:
    latency = ttft + sum(itl)
    return Record(
        start=start,
        finished=start + latency,
        prompt_tokens=more.pop("prompt_tokens", 10),
        output_tokens=1 + len(itl) if tokens is None else tokens,
        ttft=ttft,
        itl=itl,
        latency=latency,
        **more,
    )


def failed(start: float, finished: float, kind: str = "http 429") -> Record:
    return Record(start=start, finished=finished, failure=Failure(kind, "no"))


def test_percentiles_interpolate_linearly_as_numpy_does() -> None:
    values = [0.010, 0.020, 0.040, 0.080]
    found = summarize(values, (0, 25, 50, 90, 99, 100))
    assert found is not None
    # by hand: position p/100 * (n - 1), between neighbours
    expected = {0: 0.010, 25: 0.0175, 50: 0.030, 90: 0.068, 99: 0.0788, 100: 0.080}
    assert found.percentiles == pytest.approx(expected)
    assert found.median == pytest.approx(0.030)
    assert found.mean == pytest.approx(0.0375)
    assert found.std == pytest.approx(float(np.std(values)))  # of the population, not of a sample
    assert found.count == 4


def test_nothing_is_not_zero() -> None:
    assert summarize([]) is None
    metrics = measure([failed(1.0, 2.0)], 0.0)
    assert metrics.latencies["ttft"] is None and metrics.latencies["e2el"] is None
    assert metrics.output_throughput == 0


def test_tpot_is_the_time_after_the_first_token_over_the_tokens_after_it() -> None:
    record = done(0, 0.5, (0.1, 0.3), tokens=5)  # three chunks carried five tokens
    assert record.tpot == pytest.approx(0.4 / 4)


def test_one_token_answers_have_no_tpot() -> None:
    one, three = done(0, 0.5), done(0, 0.5, (0.1, 0.1))
    assert one.tpot is None
    found = measure([one, three], 0.0).latencies["tpot"]
    assert found is not None
    assert (found.count, found.mean) == (1, pytest.approx(0.1))  # a zero for `one` would give 0.05


def test_a_failed_request_is_never_fast() -> None:
    slow = [done(0, 2.0, (0.5,)) for _ in range(3)]
    metrics = measure([*slow, failed(0, 0.001), failed(0, 0.002, "no connection")], 0.0, (50, 99), {"e2el": 10.0})
    assert (metrics.completed, metrics.failed) == (3, 2)
    assert metrics.failures == {"http 429": 1, "no connection": 1}
    for name in ("ttft", "tpot", "itl", "e2el"):
        found = metrics.latencies[name]
        assert found is not None and found.count == 3
    assert metrics.latencies["ttft"].mean == pytest.approx(2.0)  # type: ignore[union-attr]
    assert metrics.total_output_tokens == 6 and metrics.total_input_tokens == 30
    assert metrics.request_goodput == pytest.approx(3 / 2.5)


def test_rates_are_over_the_whole_run() -> None:
    # Starts 1 s after the run began; the last to end is a failure, at 8 s: the server was under load until then.
    records = [done(1.0, 1.0, (1.0,), prompt_tokens=30), done(2.0, 1.0, (1.0,), prompt_tokens=30), failed(3.0, 8.0)]
    metrics = measure(records, 0.0)
    assert metrics.duration == pytest.approx(8.0)
    assert metrics.request_throughput == pytest.approx(2 / 8)
    assert metrics.output_throughput == pytest.approx(4 / 8)
    assert metrics.total_token_throughput == pytest.approx(64 / 8)


def test_the_clock_may_start_anywhere() -> None:
    metrics = measure([done(1000.5, 1.0, (0.5,))], 1000.0)
    assert metrics.duration == pytest.approx(2.0)


def test_itl_counts_gaps_between_chunks_and_tokens_come_from_usage() -> None:
    merged = done(0, 0.2, (0.3,), tokens=8)  # two chunks, eight tokens
    metrics = measure([merged], 0.0)
    itl = metrics.latencies["itl"]
    assert itl is not None and (itl.count, itl.mean) == (1, pytest.approx(0.3))
    assert metrics.total_output_tokens == 8 and metrics.chunks == 2
    tpot = metrics.latencies["tpot"]
    assert tpot is not None and tpot.mean == pytest.approx(0.3 / 7)


def test_goodput_needs_every_objective() -> None:
    record = done(0, 0.2, (0.1, 0.1))
    assert is_good(record, {"ttft": 0.2, "tpot": 0.1001, "e2el": 0.4001})
    assert not is_good(record, {"ttft": 0.199})
    assert not is_good(record, {"ttft": 1, "tpot": 0.05})
    assert not is_good(record, {"ttft": 1, "e2el": 0.3})
    assert is_good(done(0, 0.2), {"tpot": 0.0})  # one token: nothing after it to be late
    assert not is_good(failed(0, 0), {"e2el": 1e9})
    assert measure([record], 0.0).request_goodput is None  # no objectives, no goodput


def test_queue_time_is_apart_from_latency() -> None:
    found = measure([done(5.0, 1.0, queue_time=4.0)], 0.0).latencies
    assert found["e2el"].mean == pytest.approx(1.0)  # type: ignore[union-attr]
    assert found["client_queue_time"].mean == pytest.approx(4.0)  # type: ignore[union-attr]
    assert found["e2el_including_client_queue"].mean == pytest.approx(5.0)  # type: ignore[union-attr]


def test_peak_token_rate_counts_tokens_in_whole_seconds() -> None:
    # chunks at 0.5, 0.9, 1.1 s after the first start; ten tokens in each
    assert peak_token_rate([done(3.0, 0.5, (0.4, 0.2), tokens=30)]) == pytest.approx(20)
    assert peak_token_rate([]) == 0


def test_peak_concurrency_is_half_open() -> None:
    after = [done(0, 1.0), done(1.0, 1.0)]
    assert peak_concurrency(after) == 1
    assert peak_concurrency([*after, done(0.5, 1.0)]) == 2
    assert peak_concurrency([failed(0, 9.0), done(1, 1)]) == 2
    assert peak_concurrency([]) == 0
