"""What an engine says of itself."""

from __future__ import annotations

from octavo.engine_core.sched.counters import Observations
from octavo.wire.frontend import StepStats
from tests.engine.harness import Harness, Setup, request


def detail(h: Harness) -> StepStats:
    found = h.core.stats(0).detail
    assert found is not None
    return found


def test_observations_fall_into_buckets_by_their_upper_bounds() -> None:
    observations = Observations((1.0, 8.0))
    for value in (0.5, 1, 2, 8, 9, 100):
        observations.observe(value)
    record = observations.record()
    assert (record.counts, record.total) == ((2, 2, 2), 120.5)


def test_steps_are_counted_by_what_they_are_made_of() -> None:
    h = Harness(Setup(budget=16))
    h.add(request(1, [1] * 20, 4))
    h.run()
    stats = detail(h)
    assert (stats.prefill_rows, stats.prefill_tokens) == (2, 20)
    assert (stats.decode_rows, stats.decode_tokens) == (3, 3)
    assert (sum(stats.step_tokens.counts), stats.step_tokens.total) == (5, 23)
    assert sum(stats.scheduler_seconds.counts) == 5
    assert 0 < stats.scheduler_seconds.total < 5
    assert stats.cached_blocks > 0
    h.crash()
    assert detail(h).cached_blocks == 0


def test_waiting_is_counted_by_reason() -> None:
    h = Harness(Setup(budget=20, max_num_seqs=2))
    prompt = list(range(61))
    h.add(request(1, prompt, 3))
    h.step()
    h.add(request(2, prompt, 3))
    h.step()
    assert (detail(h).waiting_deferred, detail(h).waiting_capacity) == (1, 0)
    h.abort(2)
    for number in (3, 4, 5):
        h.add(request(number, [number] * 5, 3))
    h.step()
    assert (detail(h).waiting_deferred, detail(h).waiting_capacity) == (0, 2)
    h.run()
    assert (detail(h).waiting_deferred, detail(h).waiting_capacity) == (0, 0)
    h.verify_all()


def test_the_first_delta_says_how_long_the_request_waited() -> None:
    h = Harness(Setup(max_num_seqs=1))
    for number in (1, 2):
        h.add(request(number, [number] * 5, 3))
    h.run()
    h.verify_all()
    assert h.seen[1].queued_us is not None
    assert h.seen[2].queued_us is not None
    assert 0 <= h.seen[1].queued_us < h.seen[2].queued_us
