"""Steps whose rows draw from a part of the vocabulary: their masks follow the plan, while the forward runs."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from octavo.engine_core.request import Status
from octavo.wire.worker import SamplePlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine_core.grammar.protocol import Grammars
    from octavo.engine_core.sched.draft import Row
    from octavo.engine_core.sched.state import SchedState

__all__ = ["deferred", "sample_plan"]


def deferred(rows: Iterable[Row]) -> bool:
    """Tell whether a step has rows that draw under a grammar."""
    return any(row.samples and row.request.matcher is not None for row in rows)


def sample_plan(state: SchedState, grammars: Grammars) -> SamplePlan | None:
    """Return the masks of the last plan, if it is deferred, they were not sent, and all tokens before it are known.

    A request whose mask cannot be computed fails; its row draws without one, and nobody sees the token.
    """
    flight = state.unmasked
    if flight is None or state.in_flight[0] is not flight:
        return None
    state.unmasked = None
    rows = [row for row in flight.rows if row.samples and row.request.matcher is not None and _alive(row)]
    matchers = [row.request.matcher for row in rows if row.request.matcher is not None]
    masks, errors = grammars.masks(matchers)
    size = len(masks) // len(rows) if rows else 0
    slots, kept = array("i"), []
    for index, (row, error) in enumerate(zip(rows, errors, strict=True)):
        if error is None:
            slots.append(row.slot)
            kept.append(masks[index * size : (index + 1) * size])
        else:
            state.fail(row.request, f"structured output: {error}")
    return SamplePlan(flight.step, slots.tobytes(), masks if len(kept) == len(rows) else b"".join(kept))


def _alive(row: Row) -> bool:
    request = row.request
    return request.status is Status.RUNNING and request.generation == row.generation
