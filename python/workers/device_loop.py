"""The device loop: one message after the other, from the core to the body and back. No event loop near the device."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from octavo.errors import ConfigError, ModelError, OctavoError, ProtocolError
from octavo.wire.codec import Codec
from octavo.wire.worker import AllocateKv, CoreToWorker, Fault, Init, Shutdown, StepPlan, WorkerToCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.actors.child import Inbox, Outbox
    from octavo.workers.body import WorkerBody

__all__ = ["DeviceLoop"]

_log = logging.getLogger(__name__)


class DeviceLoop:
    """Runs in the device thread and owns the body."""

    def __init__(self, rank: int, inbox: Inbox, outbox: Outbox, make_body: Callable[[Init], WorkerBody]) -> None:
        """`make_body` is called with Init: it settles threads and imports before the body is made."""
        self._rank = rank
        self._inbox = inbox
        self._outbox = outbox
        self._make_body = make_body
        self._body: WorkerBody | None = None
        self._step = 0
        self._to_worker: Codec[CoreToWorker] = Codec(CoreToWorker, "message to a worker")
        self._from_worker: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")

    def run(self) -> int:
        """Serve messages until Shutdown comes (returns 0) or an exception was reported as a Fault (returns 1)."""
        try:
            while True:
                frames = self._inbox.receive()
                assert frames is not None  # no timeout was given
                message = self._to_worker.decode(frames[0])
                if isinstance(message, Shutdown):
                    return 0
                self._handle(message)
        except Exception as error:
            self._report(error)
            return 1

    def _handle(self, message: Init | AllocateKv | StepPlan) -> None:
        if isinstance(message, Init):
            self._body = self._make_body(message)
            self._send(self._body.init(message))
            return
        if self._body is None:
            raise ProtocolError(f"{type(message).__name__} came before Init")
        if isinstance(message, AllocateKv):
            self._send(self._body.allocate(message))
            return
        self._step = message.step
        result = self._body.step(message)
        if result is not None:
            self._send(result)

    def _report(self, error: Exception) -> None:
        if isinstance(error, ModelError | ConfigError) and not self._step:
            kind = "model"
        else:
            kind = "protocol" if isinstance(error, ProtocolError) else "step"
        text = error.message if isinstance(error, OctavoError) else f"{type(error).__name__}: {error}"
        trace = "" if kind == "model" else traceback.format_exc()
        # What is wrong with a model is said once, by the core, to which the fault goes.
        _log.log(logging.DEBUG if kind == "model" else logging.ERROR, "%s%s", text, f"\n{trace}" if trace else "")
        self._send(Fault(self._rank, self._step, kind, text, trace))

    def _send(self, message: WorkerToCore) -> None:
        self._outbox.send([self._from_worker.encode(message)])
