"""Suspects run alone: requests in flight in two crashes in a row without progress, one of which may be the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.sched.admission import try_admit
from octavo.engine_core.sched.policy import victim
from octavo.engine_core.sched.preemption import preempt
from octavo.engine_core.sched.running import continue_running

if TYPE_CHECKING:
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.draft import StepDraft
    from octavo.engine_core.sched.state import SchedState

__all__ = ["MAX_CRASHES_ALONE", "note_crash", "on_trial", "run_suspect"]

#: A request that was alone in flight in so many crashes, without progress between them, is at fault.
MAX_CRASHES_ALONE = 2


def note_crash(state: SchedState) -> None:
    """Count a crash of the workers against all that was in flight; fail who caused it beyond doubt."""
    rows = [row for flight in state.in_flight for row in (*flight.steady, *flight.rows)]
    hit = {row.request.id: row.request for row in rows if row.request.generation == row.generation}
    for request in hit.values():
        request.crashed(alone=len(hit) == 1)
        if request.suspect:
            state.suspects[request.id] = request


def on_trial(state: SchedState) -> bool:
    """Tell whether a suspect is alone in flight: if it crashes the workers now, that is counted against it."""
    rows = [row for flight in state.in_flight for row in (*flight.steady, *flight.rows)]
    return len({row.request.id for row in rows}) == 1 and rows[0].request.suspect


def run_suspect(state: SchedState, draft: StepDraft) -> bool:
    """If there are suspects, let the first of them have the step. Returns whether there are.

    It gets one only when nothing is in flight, so that a crash is its own. It stays alone until it makes progress
    beyond the point that it had reached before.
    """
    for request in [request for request in state.suspects.values() if not request.suspect]:
        del state.suspects[request.id]
    if not state.suspects:
        return False
    if not state.in_flight:
        suspect = min(state.suspects.values(), key=lambda request: request.key)
        if suspect in state.running:
            continue_running(state, draft, [suspect])
        else:
            _admit_suspect(state, draft, suspect)
    return True


def _admit_suspect(state: SchedState, draft: StepDraft, suspect: Request) -> None:
    while not try_admit(state, draft, suspect):
        loser = victim(state.running, spared=None)
        if loser is None:
            raise AssertionError(f"{suspect} does not fit into empty pools")
        preempt(state, draft, loser)
