"""From a worker's StepResult to the deltas that the frontend gets."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from octavo.errors import ProtocolError
from octavo.wire.frontend import Delta, Finish

if TYPE_CHECKING:
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.scheduler import Scheduler
    from octavo.wire.worker import StepResult

__all__ = ["apply_result", "end_delta"]


def apply_result(scheduler: Scheduler, result: StepResult) -> list[Delta]:
    """Apply the result of the oldest plan in flight and return what is new for the frontend.

    Raises ProtocolError if the result is not that plan's.
    """
    rows = scheduler.take_flight(result.step)
    slots, generations, lengths = (array("i", part) for part in (result.slots, result.generations, result.lengths))
    tokens = array("i", result.tokens)
    sampling = [(row.slot, row.generation) for row in rows if row.samples]
    if sampling != list(zip(slots, generations, strict=True)) or len(lengths) != len(slots):
        raise ProtocolError(f"the result of step {result.step} is for other rows than the plan sampled")
    deltas: list[Delta] = []
    entry = offset = 0
    for row in rows:
        sampled = tokens[:0]
        if row.samples:
            length = lengths[entry]
            if not 1 <= length <= row.drafts + 1:
                raise ProtocolError(f"a row with {row.drafts} drafts of step {result.step} yielded {length} tokens")
            sampled = tokens[offset : offset + length]
            entry, offset = entry + 1, offset + length
        outcome = scheduler.complete(row, sampled)
        if outcome is not None and outcome.took:
            kept = sampled if outcome.took == len(sampled) else sampled[: outcome.took]
            deltas.append(_delta(row.request, kept, outcome.finish))
    scheduler.step_ended(result.step)
    return deltas


def end_delta(request_id: int, attempt: int, start: int, finish: Finish) -> Delta:
    """Return a delta that ends a request without new tokens; `start` is the number of those emitted before."""
    return Delta(request_id, attempt, start, b"", finish)


def _delta(request: Request, sampled: array[int], finish: Finish | None) -> Delta:
    cached, request.unreported_cached = request.unreported_cached, None
    start = request.emitted - len(sampled)
    return Delta(request.id, request.attempt, start, sampled.tobytes(), finish, cached)
