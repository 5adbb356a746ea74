"""An engine core without I/O before a worker that answers at once, so that nothing but the core takes time."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from octavo.engine_core.cache.domain import Base
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import build_cache, group_layers
from octavo.engine_core.core import Core
from octavo.engine_core.sched.budget import SchedLimits
from octavo.wire.frontend import AddRequest, SamplingParams
from octavo.wire.worker import KvSpec, KvTensor, StepPlan, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.wire.frontend import Delta

__all__ = ["BLOCK_TOKENS", "Bench", "InstantWorker"]

BLOCK_TOKENS = 16
_MAX_MODEL_LEN = 131_072


class InstantWorker:
    """Answers every plan with one token a sampling row: what a real worker would send, without the model."""

    def __init__(self) -> None:
        self._generations: dict[int, int] = {}
        self._token = 0

    def step(self, plan: StepPlan) -> StepResult:
        """Return the result of a plan."""
        for row in plan.new:
            self._generations[row.slot] = row.generation
        self._token = self._token % 30_000 + 3  # never a stop id
        rows = array("i", plan.rows)
        slots = array("i", [slot for slot, samples in zip(rows, plan.samples, strict=True) if samples])
        count = len(slots)
        return StepResult(
            step=plan.step,
            slots=slots.tobytes(),
            generations=array("i", [self._generations[slot] for slot in slots]).tobytes(),
            lengths=array("i", [1]).tobytes() * count,
            tokens=array("i", [self._token]).tobytes() * count,
            compute_us=0,
        )


class Bench:
    """A core, its worker, and the clock around the core alone."""

    def __init__(self, max_num_seqs: int, num_blocks: int, *, budget: int = 8192, window: int = 1) -> None:
        flight = Flight(window, window * budget, window)
        spec = KvSpec(0, "full", (KvTensor("k", (1, 1), "float32"),))
        groups = group_layers((spec,), {"full": BLOCK_TOKENS})
        cache = build_cache(groups, [num_blocks + 1], flight, Base("bench", "float32"))
        self.core = Core(SchedLimits(max_num_seqs, budget, _MAX_MODEL_LEN, window), cache)
        self.worker = InstantWorker()
        self._ids = 0

    def add(self, prompt: Sequence[int], max_tokens: int) -> int:
        """Add a request; return its id."""
        self._ids += 1
        tokens = array("i", prompt).tobytes()
        sampling = SamplingParams(self._ids, max_tokens, stop_token_ids=(2,))
        self.core.add(AddRequest(self._ids, 1, "", tokens, b"", sampling, self._ids))
        return self._ids

    def step(self) -> tuple[float, list[Delta]]:
        """Run one step; return the seconds that the core took for it, and what it brought."""
        began = time.perf_counter()
        plan = self.core.next_plan()
        planned = time.perf_counter()
        if plan is None:
            raise AssertionError("the core has nothing to do")
        result = self.worker.step(plan)
        resumed = time.perf_counter()
        deltas = self.core.result(result)
        return planned - began + time.perf_counter() - resumed, deltas
