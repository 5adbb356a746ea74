"""Requests with grammars in a core with a FakeWorker: masked, whatever happens to them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from octavo.errors import RequestError
from octavo.wire.worker import SamplePlan, StepPlan
from tests.engine.fake_grammar import END
from tests.engine.harness import Harness, Setup, request


@pytest.mark.parametrize("window", [1, 2])
def test_outputs_follow_their_grammar_beside_others_without_one(window: int) -> None:
    h = Harness(Setup(window=window))
    h.add(request(1, [1, 2, 3], 20, grammar="7,3,12"))
    h.add(request(2, [4, 5], 20))
    h.add(request(3, [1, 2, 9], 20, temperature=1.0, grammar="11,1,30"))
    h.run()
    h.verify_all()
    assert h.seen[1].finish == "stop" and len(h.seen[1].tokens) == 12


def test_a_plan_is_deferred_only_where_a_row_draws_under_a_grammar() -> None:
    h = Harness(Setup(budget=8))
    h.add(request(1, list(range(20)), 4, grammar="7,9,9"))
    plans = []
    while h.send():
        while h.plans:
            plan = h.plans[0]
            plans.append((type(plan), getattr(plan, "deferred", None)))
            h.receive()
    assert plans[:2] == [(StepPlan, False)] * 2, "chunks of the prompt"
    assert plans[2:4] == [(StepPlan, True), (SamplePlan, None)]
    h.verify_all()


def test_masks_wait_for_the_tokens_before_them_and_go_before_the_next_plan() -> None:
    h = Harness(Setup(window=2))
    h.add(request(1, [1, 2, 3], 20, grammar="7,30,30"))
    kinds: list[str] = []
    for _ in range(40):
        while h.send():
            kinds.append("masks" if isinstance(h.plans[-1], SamplePlan) else "plan")
        if not h.plans:
            break
        h.receive()
    assert kinds[0] == "plan" and set(pairwise(kinds)) == {("plan", "masks"), ("masks", "plan")}
    h.verify_all()


def test_a_stop_id_ends_an_output_inside_of_its_grammar() -> None:
    h = Harness(Setup())
    h.add(request(1, [1, 2, 3], 20, grammar="7,2,15", stop=(END,)))
    h.run()
    h.verify_all()


@pytest.mark.parametrize("window", [1, 2])
def test_a_mask_that_cannot_be_computed_fails_that_request_alone(window: int) -> None:
    h = Harness(Setup(window=window))
    h.grammars.fail_at = 3
    h.add(request(1, [1, 2, 3], 20, grammar="7,9,9"))
    h.add(request(2, [4, 5], 20))
    h.run()
    assert (h.seen[1].finish, h.seen[1].message) == ("error", "structured output: too complex")
    assert len(h.seen[1].tokens) == 3, "nothing that was drawn without a mask"
    h.verify(2)
    h.verify_empty()


def test_a_token_that_its_grammar_does_not_allow_ends_the_request_by_name() -> None:
    h = Harness(Setup())
    h.add(request(1, [1, 2, 3], 20, grammar="7,9,9"))
    h.grammars.masks = lambda matchers: (b"\xff" * 128 * len(matchers), [None] * len(matchers))  # type: ignore[method-assign]
    h.run()
    assert h.seen[1].finish == "error" and "is not allowed" in (h.seen[1].message or "")
    h.verify_empty()


def test_replay_goes_on_where_the_grammar_stood() -> None:
    h = Harness(Setup())
    h.add(request(1, [1, 2, 3], 20, grammar="7,9,12"))
    h.run()
    emitted = tuple(h.seen[1].tokens)
    for known in (1, 5, len(emitted)):
        again = Harness(Setup())
        again.add(request(1, [1, 2, 3], 20, grammar="7,9,12", emitted=emitted[:known], attempt=2))
        again.run()
        again.verify_all()


def test_emitted_ids_that_do_not_fit_the_grammar_are_refused() -> None:
    h = Harness(Setup())
    with pytest.raises(RequestError, match="structured output: 3 is not allowed"):
        h.add(request(1, [1, 2, 3], 20, grammar="7,9,12", emitted=(3,), attempt=2))


def test_a_grammar_without_a_matcher_is_refused() -> None:
    h = Harness(Setup())
    with pytest.raises(RequestError, match="nothing that follows it"):
        h.core.add(request(1, [1], grammar="7,9,12"))
