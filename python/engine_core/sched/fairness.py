"""Short requests behind long prompts: while others want the step too, a long prompt gets only a part of it.

A prompt with more than `long_prefill_threshold` tokens to compute is long. It gets at most so many in a step until all
others have had theirs, then what is left. At most `max_long_prefills` such prompts are computed at a time, so that
several do not share the step among themselves; those behind go ahead of the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.cache.group import Span
from octavo.engine_core.sched.budget import share

if TYPE_CHECKING:
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.budget import Share
    from octavo.engine_core.sched.draft import StepDraft
    from octavo.engine_core.sched.state import SchedState

__all__ = ["first_share", "is_long", "num_long", "span_of", "top_up"]


def is_long(state: SchedState, tokens: int) -> bool:
    """Tell whether a prompt with so many tokens to compute is long."""
    return 0 < state.limits.long_prefill_threshold < tokens


def num_long(state: SchedState) -> int:
    """Return how many long prompts are being computed."""
    return sum(is_long(state, request.remaining) for request in state.prefilling.values())


def first_share(state: SchedState, draft: StepDraft, request: Request) -> Share | None:
    """Return what a running request gets while others have not had theirs. Notes who may get more."""
    budget = draft.budget
    if is_long(state, request.remaining) and state.limits.long_prefill_threshold < budget:
        budget = state.limits.long_prefill_threshold
        draft.capped.append(request)
    return share(request, budget, state.limits)


def top_up(state: SchedState, draft: StepDraft) -> None:
    """Hand out what nobody else wanted to the long prompts, as far as there are free blocks."""
    for request in draft.capped:
        row = draft.row(request)
        if row is None or request.tables is None or draft.budget == 0:
            continue
        draft.drop(request)
        got = share(request, draft.budget, state.limits)
        if got is not None and got.tokens > row.tokens and state.cache.extend(request.tables, span_of(request, got)):
            row = row._replace(tokens=got.tokens, drafts=got.drafts, samples=got.samples)
        draft.add(row)


def span_of(request: Request, got: Share) -> Span:
    """Return the tokens of a row that a request gets."""
    start = request.next_position
    return Span(start, start + got.tokens - got.drafts, start + request.flight_drafts + got.tokens)
