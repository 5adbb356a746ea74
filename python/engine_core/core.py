"""The engine without I/O: requests and results in, plans and deltas out."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from octavo.engine_core.outputs import apply_result, end_delta, last_delta
from octavo.engine_core.sched.scheduler import Scheduler
from octavo.errors import RequestError
from octavo.wire.frontend import Finish, Stats, StepStats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine_core.cache.coordinator import KvCache
    from octavo.engine_core.grammar.protocol import Grammars, Matcher
    from octavo.engine_core.sched.budget import SchedLimits
    from octavo.wire.frontend import AddRequest, Delta
    from octavo.wire.worker import SamplePlan, StepPlan, StepResult

__all__ = ["Core", "is_named"]


class Core:
    """Owns all requests of an engine. Nothing here waits; the actor around it does."""

    def __init__(self, limits: SchedLimits, cache: KvCache, grammars: Grammars | None = None) -> None:
        """`grammars` computes masks; without it no request may bring a matcher."""
        self._grammars = grammars
        self._scheduler = Scheduler(limits, cache)
        self._plan_s: deque[float] = deque()  # what the plans in flight took to make

    @property
    def idle(self) -> bool:
        """Whether there is no request and no plan in flight."""
        s = self._scheduler
        return s.num_running + s.num_waiting + s.num_in_flight == 0

    @property
    def quiet(self) -> bool:
        """Whether no plan is in flight."""
        return self._scheduler.num_in_flight == 0

    @property
    def empty(self) -> bool:
        """Whether there is no request."""
        return self._scheduler.num_running + self._scheduler.num_waiting == 0

    @property
    def on_trial(self) -> bool:
        """Whether all that is in flight is one request that may have crashed the workers before."""
        return self._scheduler.on_trial

    def has(self, request_id: int) -> bool:
        """Whether there is a request that is not finished."""
        return self._scheduler.get(request_id) is not None

    def request_ids(self) -> list[int]:
        """Return the ids of all requests that are not finished."""
        return [request.id for request in self._scheduler.requests()]

    def add(self, message: AddRequest, matcher: Matcher | None = None) -> Delta | None:
        """Queue a request. Returns its only delta if a replayed one has nothing left to do.

        `matcher` is at the beginning of its grammar. Raises RequestError for one that can never run, or that has a
        grammar and comes without a matcher.
        """
        if (message.grammar is None) != (matcher is None):
            raise RequestError("the request has a grammar and nothing that follows it", "invalid", "grammar")
        finish = self._scheduler.add(message, matcher)
        if finish is None:
            request = self._scheduler.get(message.id)
            if request is not None and request.came_us == 0:
                request.came_us = _now_us()
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

    def abort_with_news(self, names: list[str]) -> list[Delta]:
        """End the requests of these names, or all, as aborted. Returns their last deltas."""
        deltas = []
        for request in self._scheduler.requests():
            if is_named(request.name, names):
                self._scheduler.finish(request)
                deltas.append(last_delta(request, Finish("abort")))
        return deltas

    def next_plan(self) -> StepPlan | None:
        """Return the next plan to send, or None if none can go now."""
        began = time.perf_counter()
        plan = self._scheduler.schedule()
        if plan is None:
            return None
        if plan.new:
            now = _now_us()
            for request in self._scheduler.take_started():
                request.queued_us = now - request.came_us
        self._plan_s.append(time.perf_counter() - began)
        return plan

    def idle_plan(self) -> StepPlan | None:
        """Return a plan without rows; None while another plan is in flight."""
        plan = self._scheduler.idle_plan()
        if plan is not None:
            self._plan_s.append(0.0)
        return plan

    def sample_plan(self) -> SamplePlan | None:
        """Return the masks that the last plan waits for, if they can be known now. Ask before `next_plan` and after."""
        return None if self._grammars is None else self._scheduler.sample_plan(self._grammars)

    def result(self, result: StepResult) -> list[Delta]:
        """Apply the result of the oldest plan in flight. Raises ProtocolError if it is not that plan's."""
        began = time.perf_counter()
        deltas = apply_result(self._scheduler, result)
        seconds = self._plan_s.popleft() + time.perf_counter() - began
        self._scheduler.counters.scheduler_seconds.observe(seconds)
        return deltas

    def use_weights(self, key: str) -> None:
        """Compute all requests again under other weights. Nothing may be in flight."""
        self._scheduler.use_weights(key)

    def kv_lost(self) -> None:
        """Compute all requests again: the workers forget what they have. Nothing may be in flight."""
        self._scheduler.kv_lost()

    def reset_prefix_cache(self, *, running: bool) -> None:
        """Let nothing that was computed so far be found any more. With `running`, running requests start over."""
        self._scheduler.reset_prefix_cache(running=running)

    def crashed(self, *, innocent: bool = False) -> None:
        """Put all running requests back to waiting, with their tokens: the workers are gone. See Scheduler.crashed."""
        self._plan_s.clear()
        self._scheduler.crashed(innocent=innocent)

    def take_failed(self) -> list[Delta]:
        """Return the last deltas of requests that could not go on, each once. Ask after `next_plan` and `crashed`."""
        return [
            last_delta(request, Finish("error", message=message)) for request, message in self._scheduler.take_failed()
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
            detail=self._detail(),
        )

    def _detail(self) -> StepStats:
        scheduler, counters = self._scheduler, self._scheduler.counters
        return StepStats(
            waiting_capacity=scheduler.num_waiting - scheduler.num_deferred,
            waiting_deferred=scheduler.num_deferred,
            cached_blocks=scheduler.cache.num_cached(),
            decode_tokens=counters.decode_tokens,
            prefill_tokens=counters.prefill_tokens,
            decode_rows=counters.decode_rows,
            prefill_rows=counters.prefill_rows,
            scheduler_seconds=counters.scheduler_seconds.record(),
            step_tokens=counters.step_tokens.record(),
        )

    def check(self) -> None:
        """Raise AssertionError unless all invariants hold."""
        self._scheduler.check()


def is_named(name: str, names: list[str]) -> bool:
    """Tell whether `names` has a request's name, or is empty. Outputs of one call are called ID-0, ID-1, …"""
    call, _, number = name.rpartition("-")
    return not names or name in names or (number.isdigit() and call in names)


def _now_us() -> int:
    return time.monotonic_ns() // 1000
