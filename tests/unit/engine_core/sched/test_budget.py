"""What a request gets of a step."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine_core.cache.coordinator import KvTables
from octavo.engine_core.request import Request
from octavo.engine_core.sched.budget import SchedLimits, Share, better_whole, cut, share
from tests.engine.harness import request


def limits(**changes: Any) -> SchedLimits:
    return SchedLimits(**{"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 100} | changes)


def running(prompt: int, max_tokens: int = 8) -> Request:
    made = Request(request(1, list(range(prompt)), max_tokens), {}, limits())
    made.start(0, 1, KvTables([]), 0)
    return made


@pytest.mark.parametrize(
    ("budget", "align", "expected"),
    [
        (64, 1, Share(30, 0, True)),
        (30, 8, Share(30, 0, True)),
        (29, 1, Share(29, 0, False)),
        (29, 8, Share(24, 0, False)),
        (5, 8, Share(5, 0, False)),
        (0, 8, None),
    ],
)
def test_chunks_end_on_multiples_unless_they_are_the_last(budget: int, align: int, expected: Share | None) -> None:
    assert share(running(30), budget, limits(chunk_align=align)) == expected


def test_a_chunk_that_cannot_be_aligned_waits_where_a_step_has_room_for_many() -> None:
    roomy = limits(chunk_align=8, whole_chunks=True, max_num_batched_tokens=68)
    assert share(running(30), 5, roomy) is None
    assert cut(20, 3, roomy) == 0
    assert cut(20, 4, roomy) == 4
    assert cut(20, 4, limits(chunk_align=1)) == 4


def test_prompts_of_at_most_half_a_step_are_not_cut_where_cuts_are_costly() -> None:
    costly = limits(whole_chunks=True)
    assert [better_whole(tokens, costly) for tokens in (1, 32, 33)] == [True, True, False]
    assert not better_whole(32, limits(whole_chunks=True, max_num_seqs=40)), "decode rows might never leave room"
    assert not better_whole(1, limits())


def test_a_chunk_goes_on_from_an_unaligned_place_to_an_aligned_one() -> None:
    r = running(30)
    r.scheduled(5, 0, False)
    assert share(r, 15, limits(chunk_align=8)) == Share(11, 0, False)


@pytest.mark.parametrize(
    ("max_tokens", "budget", "drafts"),
    [(8, 64, 3), (3, 64, 1), (2, 64, 0), (8, 2, 1), (8, 1, 0)],
)
def test_drafts_stay_within_limit_and_budget(max_tokens: int, budget: int, drafts: int) -> None:
    r = running(4, max_tokens)
    r.scheduled(4, 0, True)
    r.completed(4, 0, True, [9])
    assert share(r, budget, limits(num_drafts=3)) == Share(1 + drafts, drafts, True)


def test_waits_when_what_is_in_flight_may_reach_the_limit() -> None:
    r = running(4, 5)
    r.scheduled(4, 0, True)
    r.completed(4, 0, True, [9])
    r.scheduled(4, 3, True)
    assert share(r, 64, limits(num_drafts=3, window=2)) is None
    r.completed(4, 3, True, [9])
    assert share(r, 64, limits(num_drafts=3, window=2)) == Share(3, 2, True)
