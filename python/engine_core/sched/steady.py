"""Rows that need no thought: plain decode with blocks, room and no event in sight. Most rows of most steps are.

A request is steady up to `Request.steady_end` tokens, those of its rows in flight included: until then its next row
computes one known token, draws one, needs no block and reaches no limit. So scheduling it is a comparison and an
increment, and a result is an append, unless the token is a stop id or `Request.wake` is reached. All else, and whoever
asks for more than plain sampling, goes the general way (running.py, Request.completed).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from octavo.engine_core.sched.draft import Row
from octavo.wire.frontend import Delta

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.state import SchedState
    from octavo.wire.frontend import Finish

__all__ = ["NEVER_STEADY", "complete_steady", "settle", "take_steady"]

NEVER_STEADY = -1


def settle(state: SchedState, request: Request) -> None:
    """Find out how far a running request is steady. Called when a row of its goes the general way, or wakes it."""
    tables = request.tables
    if (
        tables is None
        or not request.plain
        or tables.dirty
        or request.flight_computed
        or request.crashes
        or state.limits.num_drafts
        or request.num_computed != len(request.tokens) - 1
    ):
        request.steady_end = NEVER_STEADY
        return
    if request.row is None:
        request.row = Row(request, request.slot, request.generation, 1, 0, True)
    request.steady_end = min(tables.covered, request.limit - 1)
    request.wake = min(tables.next_event, request.limit - 1)


def take_steady(draft_steady: list[Row], requests: list[Request], room: int) -> list[Request]:
    """Give steady requests their rows, in order, while there is room. Returns the others, in order."""
    others = []
    for request in requests:
        if len(request.tokens) + request.flight_steady <= request.steady_end and room > 0:
            room -= 1
            request.flight_steady += 1
            draft_steady.append(request.row)  # type: ignore[arg-type]  # a steady request has its row
        else:
            others.append(request)
    return others


def complete_steady(rows: list[Row], packed: bytes, wake: Callable[[Request, int], Finish | None]) -> list[Delta]:
    """Apply the results of steady rows: one token each, `packed` as int32. Returns what is new for the frontend.

    Rows of requests that ended, or lost their slot, while they were in flight are passed over. `wake` is called for a
    request that drew a stop id or has come to its `wake`, and says why it ends, if it does.
    """
    deltas: list[Delta] = []
    append = deltas.append
    offset = 0
    for row, token in zip(rows, array("i", packed), strict=True):
        request = row[0]
        offset += 4
        if request.row is not row:
            continue
        request.tokens.append(token)
        request.num_computed = computed = request.num_computed + 1
        request.flight_steady -= 1
        finish = wake(request, token) if token in request.stop_ids or computed >= request.wake else None
        append(Delta(request.id, request.attempt, computed - request.prompt_len, packed[offset - 4 : offset], finish))
    return deltas
