"""A worker body that fails on purpose, for tests; see octavo.faults."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.faults import Faults
    from octavo.wire.worker import (
        AllocateKv,
        Init,
        KvReady,
        ModelControl,
        ModelControlDone,
        Ready,
        SamplePlan,
        StepPlan,
        StepResult,
    )
    from octavo.workers.body import PendingStep, WorkerBody

__all__ = ["FaultyBody"]


class FaultyBody:
    """Implements WorkerBody: does what another body does, unless a fault is due before a step."""

    def __init__(self, body: WorkerBody, faults: Faults) -> None:
        self._body = body
        self._faults = faults
        self._due: int | None = None  # the step before which a fault may not return

    def init(self, message: Init) -> Ready:
        return self._body.init(message)

    def allocate(self, message: AllocateKv) -> KvReady:
        return self._body.allocate(message)

    def step(self, plan: StepPlan) -> StepResult | PendingStep | None:
        self._due = plan.step
        self._faults.at(plan.step)
        for row in plan.new:
            self._faults.at(plan.step, array("i", row.tokens)[: row.prompt_len])
        self._due = None
        return self._body.step(plan)

    def sample(self, plan: SamplePlan) -> StepResult | PendingStep | None:
        return self._body.sample(plan)

    def control(self, message: ModelControl) -> ModelControlDone:
        return self._body.control(message)

    def progress(self) -> tuple[str, int, int]:
        due = self._due
        return self._body.progress() if due is None else ("step", due, 0)


def _conforms(body: FaultyBody) -> WorkerBody:
    return body
