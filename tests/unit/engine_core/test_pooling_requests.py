"""Requests that pool: one prefill that ends with vectors; those of encoders whole and without blocks."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import build_cache
from octavo.engine_core.core import Core
from octavo.engine_core.sched.budget import SchedLimits
from octavo.errors import ProtocolError, RequestError
from octavo.wire.codec import pack_tokens
from octavo.wire.frontend import AddRequest, Pooled, Pooling, SamplingParams
from octavo.wire.worker import RowPooled, StepPlan, StepResult


def make(**changed: Any) -> Core:
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 20, "max_model_len": 20, "vocab_size": 100}
    flags = {"pools": True, "whole_prompts": True}
    return Core(SchedLimits(**{**limits, **flags, **changed}), build_cache((), (), Flight(1, 1, 1), None))


EMBED = Pooling("embed")


def request(number: int, length: int, pooling: Pooling | None = EMBED, attempt: int = 1) -> AddRequest:
    prompt = pack_tokens([7] * length)
    return AddRequest(number, attempt, "r", prompt, b"", SamplingParams(0, 1), number, pooling=pooling)


def rows(plan: StepPlan) -> list[tuple[int, int]]:
    """(slot, count) of each row."""
    return list(zip(array("i", plan.rows), array("i", plan.counts), strict=True))


def result(plan: StepPlan, generations: dict[int, int], vectors: bool = True) -> StepResult:
    """What a worker says: each row's vector is its number of tokens."""
    generations |= {row.slot: row.generation for row in plan.new}
    slots = array("i", plan.rows)
    pooled = [
        RowPooled(slot, generations[slot], Pooled(1, array("f", [count]).tobytes())) for slot, count in rows(plan)
    ]
    return StepResult(
        plan.step,
        slots.tobytes(),
        array("i", [generations[slot] for slot in slots]).tobytes(),
        bytes(4 * len(slots)),
        b"",
        1,
        pooled=tuple(pooled) if vectors else (),
    )


@pytest.mark.parametrize("window", [1, 2])
def test_prompts_are_never_cut(window: int) -> None:
    core = make(window=window)
    lengths = [12, 9, 5, 20, 1, 1, 8, 3, 2, 2]
    for number, length in enumerate(lengths):
        assert core.add(request(number, length)) is None
    flying: list[StepResult] = []
    generations: dict[int, int] = {}
    seen: dict[int, float] = {}
    while not core.idle:
        plan = core.next_plan()
        core.check()
        if plan is not None:
            counts = [count for _, count in rows(plan)]
            assert sum(counts) <= 20 and set(plan.samples) == {1} and not plan.blocks
            flying.append(result(plan, generations))
        if flying and (plan is None or len(flying) == window):
            for delta in core.result(flying.pop(0)):
                assert delta.finish is not None and delta.pooled is not None and not delta.tokens
                seen[delta.id] = array("f", delta.pooled.values)[0]
    assert seen == dict(enumerate(lengths))
    assert core.stats(0).total_blocks == 0 and core.stats(0).prompt_tokens == sum(lengths)


def test_a_context_of_text_alone() -> None:
    core = make()
    assert core.add(request(0, 20)) is None
    with pytest.raises(RequestError, match="21 tokens and the context is 20") as caught:
        core.add(request(1, 21))
    assert (caught.value.code, caught.value.param) == ("too_long", "input")


def test_a_model_gives_one_or_the_other() -> None:
    with pytest.raises(RequestError, match="gives vectors, and the request wants tokens"):
        make().add(request(0, 3, None))
    with pytest.raises(RequestError, match="gives tokens, and the request wants vectors"):
        make(pools=False, whole_prompts=False).add(request(0, 3))


def test_a_crash_computes_again() -> None:
    core = make()
    core.add(request(0, 5))
    assert core.next_plan() is not None
    core.crashed()
    core.check()
    plan = core.next_plan()
    assert plan is not None and rows(plan)[0][1] == 5
    (delta,) = core.result(result(plan, {}))
    assert delta.pooled is not None and core.idle


def test_vectors_that_are_missing_are_a_fault() -> None:
    core = make()
    core.add(request(0, 5))
    plan = core.next_plan()
    assert plan is not None
    with pytest.raises(ProtocolError, match="no vectors of"):
        core.result(result(plan, {}, vectors=False))


def test_what_was_aborted_is_told_to_nobody() -> None:
    core = make()
    core.add(request(0, 5))
    plan = core.next_plan()
    assert plan is not None
    core.abort([0])
    assert core.result(result(plan, {})) == [] and core.idle
