from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from octavo.errors import ConfigError, ModelError, ProtocolError
from octavo.wire.codec import Codec
from octavo.wire.worker import (
    AllocateKv,
    CoreToWorker,
    Fault,
    Init,
    KvReady,
    Ready,
    Shutdown,
    StepPlan,
    StepResult,
    WorkerToCore,
)
from octavo.workers.device_loop import DeviceLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

INIT = Init(0, 1, "", "m", "float32", "cpu", "auto", 0, 8, 1, 8, 1)
STEP = StepPlan(7, (), b"", (), b"", b"", b"")


class Socket:
    """Both directions in memory."""

    def __init__(self, messages: list[CoreToWorker]) -> None:
        codec: Codec[CoreToWorker] = Codec(CoreToWorker, "message")
        self._in = [[codec.encode(message)] for message in messages]
        self._codec: Codec[WorkerToCore] = Codec(WorkerToCore, "message")
        self.sent: list[WorkerToCore] = []

    def receive(self, timeout_s: float | None = None) -> list[bytes] | None:
        if timeout_s is not None and not self._in:
            time.sleep(timeout_s)
            return None
        return self._in.pop(0)

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent.append(self._codec.decode(frames[0]))


class Body:
    """Answers, or raises what it was given."""

    def __init__(self, error: Exception | None = None, where: str = "") -> None:
        self._error, self._where = error, where

    def _do(self, where: str) -> None:
        if self._error is not None and where == self._where:
            raise self._error

    def init(self, message: Init) -> Ready:
        self._do("init")
        return Ready(0, 5, (), 1, 2, 3)

    def allocate(self, message: AllocateKv) -> KvReady:
        self._do("allocate")
        return KvReady(0, 9)

    def step(self, plan: StepPlan) -> StepResult | None:
        self._do("step")
        return None if self._where == "silent" else StepResult(plan.step, b"", b"", b"", b"", 0)

    def progress(self) -> tuple[str, int, int]:
        return "idle", 0, 0


def run(body: Body, messages: list[CoreToWorker]) -> tuple[int, list[WorkerToCore]]:
    socket = Socket(messages)
    code = DeviceLoop(3, cast("Any", socket), cast("Any", socket), lambda init: body, lambda: cast("Any", socket)).run()
    return code, socket.sent


def test_messages_are_answered_in_order_until_shutdown() -> None:
    code, sent = run(Body(), [INIT, AllocateKv(()), STEP, Shutdown()])
    assert code == 0
    assert sent == [Ready(0, 5, (), 1, 2, 3), KvReady(0, 9), StepResult(7, b"", b"", b"", b"", 0)]


def test_a_rank_that_does_not_report_sends_nothing() -> None:
    code, sent = run(Body(where="silent"), [INIT, AllocateKv(()), STEP, Shutdown()])
    assert (code, len(sent)) == (0, 2)


@pytest.mark.parametrize(
    ("error", "where", "kind", "step"),
    [
        (ModelError("no such model"), "init", "model", 0),
        (ConfigError("no such dtype"), "init", "model", 0),
        (RuntimeError("no such model"), "init", "step", 0),
        (MemoryError("no such model"), "allocate", "step", 0),
        (ProtocolError("no such slot"), "step", "protocol", 7),
        (ValueError("no such value"), "step", "step", 7),
        (ModelError("no such model"), "step", "step", 7),
    ],
)
def test_an_exception_becomes_a_fault(error: Exception, where: str, kind: str, step: int) -> None:
    code, sent = run(Body(error, where), [INIT, AllocateKv(()), STEP, Shutdown()])
    assert code == 1
    fault = sent[-1]
    assert isinstance(fault, Fault)
    assert (fault.rank, fault.kind, fault.step) == (3, kind, step)
    assert "no such" in fault.message
    assert ("Traceback" in fault.traceback) == (kind != "model")


def test_a_plan_before_init_is_a_fault() -> None:
    code, sent = run(Body(), [STEP])
    assert code == 1
    assert isinstance(sent[0], Fault)
    assert sent[0].message == "StepPlan came before Init"


class Launched:
    """A step that the device still runs, until `go`."""

    def __init__(self, step: int, go: threading.Event, error: Exception | None) -> None:
        self.step, self._go, self._error = step, go, error

    def wait(self) -> StepResult:
        assert self._go.wait(10)
        if self._error is not None:
            raise self._error
        return StepResult(self.step, b"", b"", b"", b"", 0)


class Launching(Body):
    """Launches two steps and answers the third at once; the first ends when the third was taken."""

    def __init__(self, failing: int = 0) -> None:
        super().__init__()
        self._go = threading.Event()
        self._failing = failing

    def step(self, plan: StepPlan) -> Any:
        if plan.step == 3:
            self._go.set()
            return StepResult(3, b"", b"", b"", b"", 0)
        return Launched(plan.step, self._go, RuntimeError("no such memory") if plan.step == self._failing else None)


PLANS: list[CoreToWorker] = [StepPlan(step, (), b"", (), b"", b"", b"") for step in (1, 2, 3)]


def test_launched_steps_do_not_hold_up_plans_and_results_keep_their_order() -> None:
    code, sent = run(Launching(), [INIT, AllocateKv(()), *PLANS, Shutdown()])
    assert code == 0
    assert [message.step for message in sent if isinstance(message, StepResult)] == [1, 2, 3]


def test_a_launched_step_that_fails_is_a_fault_though_no_message_comes() -> None:
    code, sent = run(Launching(failing=2), [INIT, AllocateKv(()), *PLANS])
    assert code == 1
    assert [message.step for message in sent if isinstance(message, StepResult)] == [1]
    fault = sent[-1]
    assert isinstance(fault, Fault)
    assert (fault.step, fault.kind, fault.message) == (2, "step", "RuntimeError: no such memory")
