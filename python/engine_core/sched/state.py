"""What the scheduler's functions work on: queues, slots, cache, plans in flight, counters."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from octavo.engine_core.sched.computing import Computing
from octavo.engine_core.sched.counters import Counters
from octavo.engine_core.sched.queue import RequestQueue
from octavo.engine_core.sched.slots import Slots

if TYPE_CHECKING:
    from octavo.engine_core.cache.coordinator import KvCache
    from octavo.engine_core.request import Request
    from octavo.engine_core.sched.budget import SchedLimits
    from octavo.engine_core.sched.draft import Row

__all__ = ["InFlight", "SchedState"]


class InFlight(NamedTuple):
    """A plan whose result is not here yet."""

    step: int
    steady: list[Row]  # see steady.py; first in the plan
    rows: list[Row]  # the others
    slots: bytes  # int32 of the rows that draw, in order: what the result must repeat
    generations: bytes  # int32, likewise


class SchedState:
    """Owns every request and knows where it stands."""

    def __init__(self, limits: SchedLimits, cache: KvCache) -> None:
        self.limits = limits
        self.cache = cache
        self.slots = Slots(limits.max_num_seqs)
        self.waiting = RequestQueue()
        self.running = RequestQueue()
        self.prefilling: dict[int, Request] = {}  # of the running ones, those whose known tokens are not all computed
        self.computing = Computing()
        self.in_flight: deque[InFlight] = deque()
        self.unmasked: InFlight | None = None  # the last plan, if it is deferred and waits for its SamplePlan
        self.step = 0  # of the last plan
        self.suspects: dict[int, Request] = {}  # see Request.suspect
        self.fresh: list[Request] = []  # that run for the first time; nobody has asked yet
        self.failed: list[tuple[Request, str]] = []  # that cannot go on, and why; not reported yet
        self.counters = Counters()
        self.deferred = 0  # requests that the last step's admission passed over, for blocks that others compute

    def start(self, request: Request, hit: int) -> None:
        """Move a waiting request to the running ones, with the cached blocks of `hit` tokens."""
        self.waiting.remove(request)
        first = not request.started
        slot, generation = self.slots.take()
        request.start(slot, generation, self.cache.open(request.chains, hit), hit)
        self.running.add(request)
        self.prefilling[request.id] = request
        if first:
            self.fresh.append(request)
        self.computing.add(request)

    def requeue(self, request: Request) -> None:
        """Move a running request back to the waiting ones and give its slot and blocks back."""
        self._leave_slot(request)
        self.cache.close(request.requeue(), self._fence())
        self.waiting.add(request)

    def finish(self, request: Request) -> None:
        """Take a request out, wherever it is, and give its slot and blocks back."""
        if request in self.waiting:
            self.waiting.remove(request)
            request.finish()
        else:
            self._leave_slot(request)
            tables = request.finish()
            assert tables is not None
            self.cache.close(tables, self._fence())
        self.suspects.pop(request.id, None)

    def fail(self, request: Request, message: str) -> None:
        """Finish a request that cannot go on; `message` is for its client."""
        self.finish(request)
        self.failed.append((request, message))

    def _leave_slot(self, request: Request) -> None:
        self.running.remove(request)
        self.slots.release(request.slot)
        self.prefilled(request)

    def prefilled(self, request: Request) -> None:
        """Note that a request's known tokens are computed, or that it does not run any more. Idempotent."""
        self.prefilling.pop(request.id, None)
        self.computing.remove(request)

    def _fence(self) -> int | None:
        return self.in_flight[-1].step if self.in_flight else None
