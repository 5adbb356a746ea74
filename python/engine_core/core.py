"""The engine without I/O: requests and results in, plans and deltas out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.outputs import apply_result, end_delta
from octavo.engine_core.sched.scheduler import Scheduler
from octavo.wire.frontend import Finish, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine_core.cache.coordinator import KvCache
    from octavo.engine_core.sched.budget import SchedLimits
    from octavo.wire.frontend import AddRequest, Delta
    from octavo.wire.worker import StepPlan, StepResult

__all__ = ["Core"]


class Core:
    """Owns all requests of an engine. Nothing here waits; the actor around it does."""

    def __init__(self, limits: SchedLimits, cache: KvCache) -> None:
        self._scheduler = Scheduler(limits, cache)

    @property
    def idle(self) -> bool:
        """Whether there is no request and no plan in flight."""
        s = self._scheduler
        return s.num_running + s.num_waiting + s.num_in_flight == 0

    def request_ids(self) -> list[int]:
        """Return the ids of all requests that are not finished."""
        return [request.id for request in self._scheduler.requests()]

    def add(self, message: AddRequest) -> Delta | None:
        """Queue a request. Returns its only delta if a replayed one has nothing left to do.

        Raises RequestError for one that can never run.
        """
        finish = self._scheduler.add(message)
        if finish is None:
            return None
        return end_delta(message.id, message.attempt, len(message.emitted) // 4, finish)

    def abort(self, ids: Iterable[int]) -> None:
        """Take requests out and give back what they hold. Unknown ids are ignored; no delta tells of it."""
        for request_id in ids:
            request = self._scheduler.get(request_id)
            if request is not None:
                self._scheduler.finish(request)

    def abort_all(self) -> None:
        """Take all requests out: nobody waits for them any more."""
        self.abort(self.request_ids())

    def next_plan(self) -> StepPlan | None:
        """Return the next plan to send, or None if none can go now."""
        return self._scheduler.schedule()

    def result(self, result: StepResult) -> list[Delta]:
        """Apply the result of the oldest plan in flight. Raises ProtocolError if it is not that plan's."""
        return apply_result(self._scheduler, result)

    def crashed(self) -> None:
        """Put all running requests back to waiting, with their tokens: the workers are gone."""
        self._scheduler.crashed()

    def take_failed(self) -> list[Delta]:
        """Return the last deltas of requests that could not go on, each once. Ask after `next_plan` and `crashed`."""
        return [
            end_delta(request.id, request.attempt, request.emitted, Finish("error", message=message))
            for request, message in self._scheduler.take_failed()
        ]

    def stats(self, worker_restarts: int) -> Stats:
        """Return the gauges and the counters since the start."""
        scheduler, counters = self._scheduler, self._scheduler.counters
        return Stats(
            running=scheduler.num_running,
            waiting=scheduler.num_waiting,
            free_blocks=scheduler.cache.num_free(),
            total_blocks=scheduler.cache.num_blocks(),
            prompt_tokens=counters.prompt_tokens,
            generated_tokens=counters.generated_tokens,
            prefix_queries=counters.prefix_queries,
            prefix_hits=counters.prefix_hits,
            preemptions=counters.preemptions,
            worker_restarts=worker_restarts,
            steps=counters.steps,
        )

    def check(self) -> None:
        """Raise AssertionError unless all invariants hold."""
        self._scheduler.check()
