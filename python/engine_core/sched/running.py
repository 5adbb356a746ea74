"""What is running goes on: decode rows first, then the prompts that are not computed yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.sched.budget import Share
from octavo.engine_core.sched.draft import Row
from octavo.engine_core.sched.fairness import first_share, span_of
from octavo.engine_core.sched.preemption import extend_or_preempt
from octavo.engine_core.sched.steady import take_steady

if TYPE_CHECKING:
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.draft import StepDraft
    from octavo.engine_core.sched.state import SchedState

__all__ = ["add_row", "continue_running"]


def continue_running(state: SchedState, draft: StepDraft, requests: list[Request]) -> None:
    """Give each of `requests`, in order, a row if budget and blocks allow; may preempt any running request."""
    prompts = []
    for request in take_steady(draft.steady, requests, draft.budget):
        if request.remaining > 1:
            prompts.append(request)
        elif draft.budget > 0 and request.tables is not None:
            add_row(state, draft, request)
    for request in prompts:
        if draft.budget > 0 and request.tables is not None:  # it may have been preempted by one before it
            add_row(state, draft, request)


def add_row(state: SchedState, draft: StepDraft, request: Request) -> bool:
    """Give a running request its share of the step. Returns whether it got a row."""
    got = first_share(state, draft, request)
    tables = request.tables
    if got is None or tables is None:
        return False
    end_max = request.next_position + request.flight_drafts + got.tokens
    if end_max > tables.covered or got.tokens - got.drafts > 1:  # else there is room already
        span = span_of(request, got)
        if got.drafts and not state.cache.extend(tables, span):  # drafts are not worth anybody's preemption
            got = Share(got.tokens - got.drafts, 0, got.samples)
            span = span_of(request, got)
        if not extend_or_preempt(state, draft, request, span):
            return False
    draft.add(Row(request, request.slot, request.generation, *got))
    return True
