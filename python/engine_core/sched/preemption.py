"""Making room: the last in the order of service goes back to waiting and is computed again later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.sched.policy import victim

if TYPE_CHECKING:
    from octavo.engine_core.cache.group import Span
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.draft import StepDraft
    from octavo.engine_core.sched.state import SchedState

__all__ = ["extend_or_preempt", "preempt"]


def extend_or_preempt(state: SchedState, draft: StepDraft, request: Request, span: Span) -> bool:
    """Get the blocks for a row, at the cost of requests that are served later. Returns whether the row can go.

    It cannot when the request itself was the one to go, or when blocks are behind fences: then it waits for these
    rather than preempt more. A request that is alone and still finds no room fails: recomputing would not help.
    """
    tables = request.tables
    assert tables is not None
    while not state.cache.extend(tables, span):
        if state.in_flight and state.cache.extend_waits(tables, span):
            return False
        loser = victim(state.running, spared=request if request.suspect else None)
        if len(state.running) == 1:
            if not state.in_flight:
                state.fail(request, _no_room(state, request))
            return False
        assert loser is not None
        preempt(state, draft, loser)
        if loser is request:
            return False
    return True


def preempt(state: SchedState, draft: StepDraft, request: Request) -> None:
    """Put a running request back to waiting. Its results in flight will be dropped, its cached blocks may be found."""
    draft.drop(request)
    draft.preempted = True
    state.requeue(request)
    state.counters.preemptions += 1


def _no_room(state: SchedState, request: Request) -> str:
    pools = ", ".join(str(group.pool.capacity * group.block_tokens) for group in state.cache.groups)
    return (
        f"the request has {len(request.tokens)} tokens and cannot grow: the KV pools hold {pools} tokens;"
        " raise --kv-cache-memory-bytes or lower --max-model-len"
    )
