"""An engine core and a worker body in one process: plans go straight to the body."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from octavo.engine_core.cache.domain import Base
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import block_tokens_by_kind, build_cache, group_layers
from octavo.engine_core.core import Core
from octavo.engine_core.sched.budget import SchedLimits
from octavo.wire.frontend import AddRequest, Domain, SamplingParams
from octavo.wire.worker import AllocateKv, Init, StepResult
from octavo.workers.model_body import ModelBody
from tests.teacher import Check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from octavo.wire.frontend import Delta, Embeds, Stats
    from octavo.wire.worker import KvReady, Ready, StepPlan
    from octavo.workers.body import PendingStep

__all__ = ["Ask", "Engine", "EngineSetup", "Workers", "serve"]

STEPS_AT_MOST = 100_000


@dataclass(frozen=True)
class Ask:
    """One request, and the step before which it arrives."""

    prompt: list[int]
    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    arrives: int = 0
    embeds: Embeds | None = None  # what the engine gets instead of `prompt`


@dataclass(frozen=True)
class EngineSetup:
    """One engine. `num_blocks` bounds the KV pool."""

    num_blocks: int
    block_tokens: int = 16
    budget: int = 256
    max_num_seqs: int = 16
    max_model_len: int = 512
    dtype: str = "float32"
    caching: bool = True
    device: str = "cpu"
    window: int = 1  # plans in flight
    graph_sizes: tuple[int, ...] | None = None  # as in Runner


class Workers(Protocol):
    """What runs plans: a body in this process, or processes."""

    def init(self, message: Init) -> Ready: ...
    def allocate(self, message: AllocateKv) -> KvReady: ...
    def step(self, plan: StepPlan) -> StepResult | PendingStep | None: ...


@dataclass
class Served:
    """What one client saw."""

    ask: Ask
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    cached: int = 0

    def check(self) -> Check:
        """Return this request for the teacher."""
        a = self.ask
        return Check(a.prompt, self.tokens, a.temperature, a.top_k, a.top_p, a.seed)


class Engine:
    """Drives a real core and real workers, `window` plans ahead of the results."""

    def __init__(self, model: Path, setup: EngineSetup, workers: Workers | None = None) -> None:
        s = setup
        self._workers = workers or ModelBody()
        self._window = s.window
        init = Init(
            0,
            1,
            "",
            str(model),
            s.dtype,
            s.device,
            "auto",
            0,
            s.max_model_len,
            s.max_num_seqs,
            s.budget,
            threads=1,
            graph_sizes=s.graph_sizes,
        )
        ready = self._workers.init(init)
        groups = group_layers(ready.kv_specs, block_tokens_by_kind(s.block_tokens))
        flight = Flight(s.window, s.window * s.budget, s.window)
        base = Base("parity", s.dtype) if s.caching else None
        cache = build_cache(groups, [s.num_blocks] * len(groups), flight, base)
        limits = SchedLimits(s.max_num_seqs, s.budget, s.max_model_len, s.window, hidden_size=ready.hidden_size)
        self.core = Core(limits, cache)
        self._workers.allocate(AllocateKv(tuple(group.alloc(s.num_blocks) for group in groups)))
        self.served: dict[int, Served] = {}
        self.chunked = 0  # rows that did not reach the end of their tokens

    def run(self, asks: list[Ask]) -> list[Served]:
        """Serve all; each request arrives before the step it names."""
        waiting = sorted(enumerate(asks), key=lambda item: item[1].arrives)
        flying: deque[Callable[[], StepResult]] = deque()
        for step in range(STEPS_AT_MOST):
            while waiting and waiting[0][1].arrives <= step:
                self._add(*waiting.pop(0))
            plan = self.core.next_plan()
            self._take(self.core.take_failed())
            self.core.check()
            if plan is not None:
                self.chunked += plan.samples.count(0)
                flying.append(self._launch(plan))
            if flying and (plan is None or len(flying) == self._window):
                self._take(self.core.result(flying.popleft()()))
            elif plan is None and not waiting:
                assert self.core.idle
                return [self.served[number] for number in range(len(asks))]
        raise AssertionError("the engine did not come to an end")

    def _launch(self, plan: StepPlan) -> Callable[[], StepResult]:
        """Begin a step; return what waits for its result."""
        result = self._workers.step(plan)
        assert result is not None
        return (lambda: result) if isinstance(result, StepResult) else result.wait

    def stats(self) -> Stats:
        """Return the core's counters."""
        return self.core.stats(0)

    def _add(self, number: int, ask: Ask) -> None:
        self.served[number] = Served(ask)
        sampling = SamplingParams(ask.seed, ask.max_tokens, ask.temperature, ask.top_p, ask.top_k)
        prompt, domain = array("i", ask.prompt), None
        if ask.embeds is not None:
            prompt, domain = array("i", bytes(4 * len(prompt))), Domain(media=(str(hash(ask.embeds.values)),))
        message = AddRequest(number, 1, f"r{number}", prompt.tobytes(), b"", sampling, arrival_us=number)
        self.core.add(msgspec.structs.replace(message, domain=domain, embeds=ask.embeds))

    def _take(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            seen = self.served[delta.id]
            assert delta.start == len(seen.tokens)
            seen.tokens += array("i", delta.tokens)
            seen.cached += delta.cached_tokens or 0
            seen.finish = delta.finish.reason if delta.finish else seen.finish


def serve(model: Path, setup: EngineSetup, asks: list[Ask]) -> tuple[Engine, list[Served]]:
    """Serve all requests with one engine and check that each came to its end."""
    engine = Engine(model, setup)
    served = engine.run(asks)
    for seen in served:
        assert seen.finish == "length"
        assert len(seen.tokens) == seen.ask.max_tokens
    return engine, served
