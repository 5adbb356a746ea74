"""Short requests behind long prompts, and crowds."""

from __future__ import annotations

from array import array

import pytest

from octavo.errors import RequestError
from tests.engine.harness import Harness, Setup, request


def counts(h: Harness) -> dict[int, int]:
    """Send a plan; return the tokens of each slot's row."""
    assert h.send()
    plan = h.plans[-1]
    return dict(zip(array("i", plan.rows), array("i", plan.counts), strict=True))


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    h = Harness(Setup(budget=24, long_prefill=12))
    h.add(request(1, [1] * 200, 3))
    assert counts(h) == {0: 24}, "nobody else wants the step"
    h.receive()
    h.add(request(2, [2] * 10, 3))
    assert counts(h) == {0: 12, 1: 10}, "both in one step, and what is left is no whole chunk more"
    h.receive()
    assert h.seen[2].tokens, "the short one has its first token after one step"
    h.run()
    h.verify_all()


def test_without_a_threshold_the_long_prompt_takes_all() -> None:
    h = Harness(Setup(budget=24))
    h.add(request(1, [1] * 200, 3))
    h.step()
    h.add(request(2, [2] * 10, 3))
    assert counts(h) == {0: 24}
    h.receive()
    h.run()
    h.verify_all()


def test_one_long_prompt_is_computed_at_a_time_and_shorter_ones_go_ahead() -> None:
    h = Harness(Setup(budget=24, long_prefill=12))
    for number, length in ((1, 100), (2, 100), (3, 8)):
        h.add(request(number, [number] * length, 2))
    assert counts(h) == {0: 12, 1: 8}
    assert h.core._scheduler.get(2).status.value == "waiting"  # type: ignore[union-attr]
    h.receive()
    h.run()
    assert h.finished == [3, 1, 2]
    h.verify_all()


def test_two_long_prompts_may_be_computed_at_a_time() -> None:
    h = Harness(Setup(budget=24, long_prefill=6, max_long=2))
    for number in (1, 2, 3):
        h.add(request(number, [number] * 100, 2))
    assert counts(h) == {0: 18, 1: 6}, "the first gets what the others leave"
    h.receive()
    h.run()
    h.verify_all()


def test_a_crowd_is_refused_and_what_is_sent_again_is_not() -> None:
    h = Harness(Setup(max_num_seqs=2, max_waiting=1))
    for number in (1, 2, 3):
        h.add(request(number, [number] * 5, 4))
    with pytest.raises(RequestError, match="3 requests wait, 1 may") as caught:
        h.core.add(request(4, [4] * 5, 4))
    assert caught.value.code == "overloaded"
    h.add(request(5, [5] * 5, 4, attempt=2))
    h.step()
    h.run()
    h.verify_all()
