"""The device loop: one message after the other, from the core to the body and back. No event loop near the device."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from octavo.errors import ConfigError, ModelError, OctavoError, PeerError, ProtocolError
from octavo.wire.codec import Codec
from octavo.wire.worker import (
    AllocateKv,
    CoreToWorker,
    Fault,
    Init,
    ModelControl,
    SamplePlan,
    Shutdown,
    StepPlan,
    StepResult,
    WorkerToCore,
)
from octavo.workers.heap import HeapKeeper
from octavo.workers.output import OutputThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.actors.child import Inbox, Outbox
    from octavo.workers.body import PendingStep, WorkerBody

__all__ = ["DeviceLoop"]

_log = logging.getLogger(__name__)

#: How often a loop without messages looks whether a launched step has failed; after so long it counts as resting.
_CHECK_S = 0.2
#: What launched steps have to come to their end when the loop leaves.
_DRAIN_S = 5.0


class DeviceLoop:
    """Runs in the device thread and owns the body."""

    def __init__(
        self,
        rank: int,
        inbox: Inbox,
        outbox: Outbox,
        make_body: Callable[[Init], WorkerBody],
        make_outbox: Callable[[], Outbox],
    ) -> None:
        """`make_body` is called with Init: it settles threads and imports before the body is made.

        `make_outbox` connects the output thread, which a body that launches steps needs.
        """
        self._rank = rank
        self._inbox = inbox
        self._outbox = outbox
        self._make_body = make_body
        self._make_outbox = make_outbox
        self._output: OutputThread | None = None
        self._heap = HeapKeeper()
        self._body: WorkerBody | None = None
        self._step = 0
        self._deferred: int | None = None  # the step whose SamplePlan must come next
        self._to_worker: Codec[CoreToWorker] = Codec(CoreToWorker, "message to a worker")
        self._from_worker: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")

    def run(self) -> int:
        """Serve messages until Shutdown comes (returns 0) or an exception was reported as a Fault (returns 1)."""
        try:
            while True:
                frames = self._inbox.receive(None if self._output is None and self._heap.rests else _CHECK_S)
                if self._output is not None and self._output.failed is not None:
                    self._step, error = self._output.failed
                    raise error
                if frames is None:
                    self._heap.rested()
                    continue
                message = self._to_worker.decode(frames[0])
                if isinstance(message, Shutdown):
                    return 0
                self._handle(message)
                self._heap.worked()
        except Exception as error:
            self._report(error)
            return 1
        finally:
            if self._output is not None:
                self._output.close(_DRAIN_S)

    def _handle(self, message: Init | AllocateKv | StepPlan | SamplePlan | ModelControl) -> None:
        if isinstance(message, Init):
            self._body = self._make_body(message)
            self._send(self._body.init(message))
            return
        if self._body is None:
            raise ProtocolError(f"{type(message).__name__} came before Init")
        if isinstance(message, AllocateKv):
            self._send(self._body.allocate(message))
            return
        if isinstance(message, ModelControl):
            self._send(self._body.control(message))
            return
        expected, self._deferred = self._deferred, None
        if (expected is not None) != isinstance(message, SamplePlan) or expected not in (None, message.step):
            raise ProtocolError(f"{type(message).__name__} of step {message.step} came; deferred is step {expected}")
        self._step = message.step
        if isinstance(message, SamplePlan):
            result = self._body.sample(message)
        else:
            result = self._body.step(message)
            self._deferred = message.step if message.deferred else None
        if result is not None:
            self._deliver(result)

    def _deliver(self, result: StepResult | PendingStep) -> None:
        """Send a result at once, or by the output thread once there has been one to wait for."""
        if self._output is None:
            if isinstance(result, StepResult):
                self._send(result)
                return
            self._output = OutputThread(self._connect_output)
        self._output.put(result)

    def _connect_output(self) -> Callable[[StepResult], None]:
        outbox = self._make_outbox()
        codec: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")
        return lambda result: outbox.send([codec.encode(result)])

    def _report(self, error: Exception) -> None:
        if isinstance(error, ModelError | ConfigError) and not self._step:
            kind = "model"
        elif isinstance(error, PeerError):
            kind = "peer"
        else:
            kind = "protocol" if isinstance(error, ProtocolError) else "step"
        text = error.message if isinstance(error, OctavoError) else f"{type(error).__name__}: {error}"
        trace = "" if kind == "model" else traceback.format_exc()
        # What is wrong with a model is said once, by the core, to which the fault goes.
        _log.log(logging.DEBUG if kind == "model" else logging.ERROR, "%s%s", text, f"\n{trace}" if trace else "")
        self._send(Fault(self._rank, self._step, kind, text, trace))

    def _send(self, message: WorkerToCore) -> None:
        self._outbox.send([self._from_worker.encode(message)])
