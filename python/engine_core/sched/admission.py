"""Who starts: waiting requests, in order, whose whole prompt fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.sched.budget import better_whole, cut
from octavo.engine_core.sched.fairness import is_long, num_long
from octavo.engine_core.sched.running import add_row

if TYPE_CHECKING:
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.draft import StepDraft
    from octavo.engine_core.sched.state import SchedState

__all__ = ["admit_waiting", "try_admit"]

#: Requests that others may overtake in a step; bounds its time.
_MAX_PASSED_OVER = 32
#: One block in so many stays free at admission, so that those who run can grow for a while.
_WATERMARK = 100


def admit_waiting(state: SchedState, draft: StepDraft) -> None:
    """Start waiting requests while there are slots, tokens and blocks. A step that preempted admits nobody.

    The first one that does not fit holds up those behind it, so that long prompts are not overtaken for ever. One
    that waits for another to compute its next block does not, nor does a long prompt that waits for another one.
    """
    state.deferred = 0
    if draft.preempted or not len(state.waiting) or state.slots.num_free == 0 or draft.budget == 0:
        return
    reserved, longs, passed_over = _reserved(state), num_long(state), 0
    for request in state.waiting:
        if draft.budget == 0 or state.slots.num_free == 0 or passed_over == _MAX_PASSED_OVER:
            return
        hit = _hit(state, request)
        remaining = len(request.tokens) - hit
        if draft.budget < remaining and _full(state, draft, hit, remaining):
            return
        long = is_long(state, remaining)
        if state.computing.worth_waiting(request, hit):
            request.waits += 1
            state.deferred += 1
            passed_over += 1
        elif long and longs >= state.limits.max_long_prefills:
            passed_over += 1
        elif not _start(state, draft, request, hit, reserved):
            return
        else:
            assert request.tables is not None
            longs += long
            ahead = state.cache.ahead(request.tables, len(request.tokens))
            reserved = [keep + more for keep, more in zip(reserved, ahead, strict=True)]


def _full(state: SchedState, draft: StepDraft, hit: int, remaining: int) -> bool:
    """Tell whether a step is as good as full for a prompt that does not fit it, with `remaining` tokens to compute.

    A long prompt that runs leaves half of each step, in which prompts of that size begin all the same.
    """
    if not draft.capped and better_whole(remaining, state.limits):
        return True
    return not cut(hit, draft.budget, state.limits)


def try_admit(state: SchedState, draft: StepDraft, request: Request) -> bool:
    """Start one request, whoever else waits. Returns False if it does not fit beside those who run."""
    if state.slots.num_free == 0:
        return False
    hit = _hit(state, request)
    return _start(state, draft, request, hit, _reserved(state))


def _hit(state: SchedState, request: Request) -> int:
    """Return the tokens found in the cache; none for a prompt whose log probabilities are wanted: those need logits."""
    return 0 if request.reads_prompt else state.cache.longest_hit(request.chains, request.tokens)


def _start(state: SchedState, draft: StepDraft, request: Request, hit: int, reserved: list[int]) -> bool:
    keep = reserved if len(state.running) else [0] * len(reserved)  # one that is alone may have everything
    if not state.cache.fits_now(request.chains, hit, len(request.tokens), keep):
        return False
    first = not request.started
    state.start(request, hit)
    state.counters.prefix_queries += len(request.tokens) if state.cache.caching else 0
    state.counters.prefix_hits += hit
    state.counters.prompt_tokens += request.prompt_len if first else 0
    draft.admitted.append(request)
    if not add_row(state, draft, request):
        raise AssertionError(f"{request} was admitted and got no row")
    return True


def _reserved(state: SchedState) -> list[int]:
    """Return the blocks of each group that running prompts have yet to allocate, and the watermark."""
    reserved = [-(-group.pool.capacity // _WATERMARK) for group in state.cache.groups]
    for request in state.prefilling.values():
        if request.remaining > 1 and request.tables is not None:
            ahead = state.cache.ahead(request.tables, len(request.tokens))
            reserved = [keep + more for keep, more in zip(reserved, ahead, strict=True)]
    return reserved
