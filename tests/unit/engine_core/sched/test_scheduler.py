"""What the scheduler decides, seen through a whole engine with a FakeWorker."""

from __future__ import annotations

from array import array

import pytest

from octavo.engine_core.sched.draft import StepDraft
from octavo.engine_core.sched.preemption import preempt
from octavo.errors import ProtocolError, RequestError
from octavo.wire.worker import StepResult
from tests.engine.harness import Harness, Setup, request


def rows(h: Harness) -> list[tuple[int, int]]:
    """Send a plan; return its (slot, count) pairs."""
    assert h.send()
    plan = h.plans[-1]
    return list(zip(array("i", plan.rows), array("i", plan.counts), strict=True))


def test_decode_rows_come_first_and_prompts_share_what_is_left() -> None:
    h = Harness(Setup(budget=16))
    h.add(request(1, [1] * 5))
    assert rows(h) == [(0, 5)]
    h.receive()
    h.add(request(2, [2] * 30))
    h.add(request(3, [3] * 30))
    assert rows(h) == [(0, 1), (1, 12), (2, 3)], "chunks end on multiples of 6, unless that leaves none"
    h.receive()
    assert rows(h) == [(0, 1), (1, 12), (2, 3)]
    h.receive()
    assert rows(h) == [(0, 1), (1, 6), (2, 6)]
    h.run()
    h.verify_all()


def test_where_cuts_are_costly_a_prompt_begins_in_a_step_that_holds_it() -> None:
    h = Harness(Setup(budget=64, whole_chunks=True))
    for number, tokens in ((1, 20), (2, 30), (3, 20), (4, 120)):
        h.add(request(number, [number] * tokens))
    assert rows(h) == [(0, 20), (1, 30)], "14 tokens are left, and 20 fit the next step"
    h.receive()
    assert rows(h) == [(0, 1), (1, 1), (2, 20), (3, 42)], "no step holds 120 tokens: they are cut at a multiple of 6"
    h.receive()
    assert rows(h) == [(0, 1), (1, 1), (2, 1), (3, 60)]
    h.add(request(5, [5] * 30))
    h.receive()
    assert rows(h)[3:] == [(3, 18), (4, 30)]
    h.run()
    h.verify_all()


def test_a_prompt_that_can_never_fit_is_refused_with_both_numbers() -> None:
    h = Harness(Setup(max_model_len=64, spare_blocks=(0, 0, 0)))
    with pytest.raises(RequestError, match="64 tokens and the context is 64"):
        h.core.add(request(1, [1] * 64))
    h.core.check()


def test_admission_waits_until_the_whole_prompt_fits() -> None:
    h = Harness(Setup(max_model_len=40, spare_blocks=(0, 30, 30), budget=64))
    h.add(request(1, [1] * 20, 4))
    h.add(request(2, [2] * 20, 4))
    assert len(rows(h)) == 1
    assert (h.core.stats(0).running, h.core.stats(0).waiting) == (1, 1)
    h.receive()
    h.run()
    h.verify_all()
    assert h.core.stats(0).preemptions == 0


def test_the_latest_of_the_lowest_priority_is_preempted() -> None:
    h = Harness(Setup(max_model_len=40, spare_blocks=(3, 30, 30), caching=False))
    for number, priority in ((1, 0), (2, 1), (3, 0)):
        h.add(request(number, [number] * 10, 20, priority=priority))
    h.run()
    h.verify_all()
    assert h.core.stats(0).preemptions > 0
    assert h.finished == [1, 3, 2]


def test_a_preempting_step_admits_nobody() -> None:
    h = Harness(Setup(max_num_seqs=2, max_model_len=40, spare_blocks=(0, 30, 30), caching=False))
    h.add(request(1, [1] * 16, 9))
    h.add(request(2, [2] * 20, 9))
    h.step()  # 9 of the 10 full blocks are taken
    h.add(request(3, [3] * 4, 9, priority=-1))  # would fit, but all slots are taken
    while h.core.stats(0).preemptions == 0:
        assert h.step()
    assert (h.core.stats(0).running, h.core.stats(0).waiting) == (1, 2)
    h.step()
    assert (h.core.stats(0).running, h.core.stats(0).waiting) == (2, 1)
    h.run()
    h.verify_all()


def test_equal_prompts_are_computed_once() -> None:
    h = Harness(Setup())
    prompt = list(range(61))
    for number in range(1, 9):
        h.add(request(number, prompt, 3))
    h.run()
    h.verify_all()
    assert h.core.stats(0).prefix_hits == 7 * 60
    assert h.computed_tokens == 61 + 7 * 1 + 8 * 2
    assert [h.seen[number].cached for number in range(1, 9)] == [0] + [60] * 7


def test_nobody_waits_for_what_was_given_up() -> None:
    h = Harness(Setup(budget=6))
    prompt = list(range(61))
    h.add(request(1, prompt, 3))
    h.step()
    h.add(request(2, prompt, 3))
    h.step()
    assert h.core.stats(0).waiting == 1
    h.abort(1)
    h.run()
    h.verify_all()


def test_results_of_aborted_requests_are_dropped_and_their_blocks_fenced() -> None:
    h = Harness(Setup(window=2))
    h.add(request(1, [1] * 10, 20))
    h.send()
    h.receive()
    h.send()
    h.send()
    free = h.core.stats(0).free_blocks
    h.abort(1)
    assert h.core.stats(0).free_blocks == free, "two plans in flight may still write"
    h.receive()
    assert h.core.stats(0).free_blocks == free
    h.receive()
    h.verify_empty()


def test_a_slot_can_have_a_new_owner_while_the_old_ones_row_is_in_flight() -> None:
    h = Harness(Setup(window=2, max_num_seqs=1))
    h.add(request(1, [1] * 5, 20))
    h.step()
    h.add(request(2, [2] * 5, 3))
    h.abort(1)
    h.run()
    h.verify_all()


def test_higher_attempts_replace_and_lower_ones_are_ignored() -> None:
    h = Harness(Setup())
    h.add(request(1, [1] * 5, 6))
    for _ in range(3):
        h.step()
    sent = tuple(h.seen[1].tokens)
    assert h.core.add(request(1, [1] * 5, 6)) is None
    assert h.core.stats(0).running == 1
    h.add(request(1, [1] * 5, 6, emitted=sent, attempt=2))
    h.run()
    h.verify_all()


def test_a_replay_with_nothing_left_ends_at_once() -> None:
    h = Harness(Setup())
    delta = h.core.add(request(1, [1] * 5, 2, emitted=(4, 5), attempt=2))
    assert delta is not None
    assert delta.finish is not None
    assert (delta.start, delta.tokens, delta.finish.reason) == (2, b"", "length")
    h.verify_empty()


def test_a_result_of_another_step_or_of_other_rows_is_refused() -> None:
    h = Harness(Setup())
    h.add(request(1, [1] * 5))
    h.send()
    with pytest.raises(ProtocolError, match="step 9"):
        h.core.result(StepResult(9, b"", b"", b"", b"", 0))
    with pytest.raises(ProtocolError, match="other rows"):
        h.core.result(StepResult(1, b"", b"", b"", b"", 0))


def test_trap_preemption_in_flight_a_row_of_an_earlier_life_is_not_applied() -> None:
    h = Harness(Setup(window=2))
    h.add(request(1, [1] * 5, 9))
    h.send()
    state = h.core._scheduler._state
    preempt(state, StepDraft(0), next(iter(state.running)))
    assert h.send(), "it runs again, under a higher generation, while its first row is in flight"
    h.receive()
    assert h.seen[1].tokens == []
    h.run()
    h.verify_all()


def test_nobody_is_preempted_for_blocks_that_a_fence_is_about_to_release() -> None:
    h = Harness(Setup(window=2, max_model_len=40, spare_blocks=(1, 30, 30), caching=False))
    for number, length in ((1, 16), (2, 16), (3, 8)):  # 4, 4 and 2 of the 11 full blocks
        h.add(request(number, [number] * length, 4))
    h.send()
    h.abort(3)
    assert rows(h) == [(0, 1)], "one block is left; the second request waits for those of the third"
    assert (h.core.stats(0).preemptions, h.core.stats(0).running) == (0, 2)
    h.run()
    h.verify_all()
    assert h.core.stats(0).preemptions == 0
