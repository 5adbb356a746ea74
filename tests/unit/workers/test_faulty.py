"""A body that fails on purpose says so in its progress, and otherwise does what the other does."""

from __future__ import annotations

from array import array
from typing import Any, cast

import pytest

from octavo.faults import VARIABLE, Faults, InjectedFault
from octavo.wire.frontend import SamplingParams
from octavo.wire.worker import NewRow, StepPlan
from octavo.workers.body import WorkerBody
from octavo.workers.faulty import FaultyBody


class Quiet:
    """A body that remembers what it was told."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def step(self, plan: StepPlan) -> None:
        self.steps.append(plan.step)

    def progress(self) -> tuple[str, int, int]:
        return "idle", 0, 0


def plan(step: int, *tokens: int) -> StepPlan:
    row = NewRow(0, 1, array("i", tokens).tobytes(), len(tokens), 0, SamplingParams(0, 1))
    return StepPlan(step, (row,), b"", (), b"", b"", b"")


def test_faults_strike_before_the_step() -> None:
    quiet = Quiet()
    faults = Faults.find("worker", 0, {VARIABLE: "worker:device_error@token=5; worker:oom@step=9"})
    body = FaultyBody(cast(WorkerBody, cast(Any, quiet)), faults)
    body.step(plan(1, 3, 4))
    assert body.progress() == ("idle", 0, 0)
    with pytest.raises(InjectedFault):
        body.step(plan(2, 4, 5))
    assert body.progress() == ("step", 2, 0), "where it stands if a fault never returns"
    with pytest.raises(MemoryError):
        body.step(plan(9))
    assert quiet.steps == [1]
