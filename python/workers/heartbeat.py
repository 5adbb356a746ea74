"""The heartbeat: says every second where the device thread is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import zmq

from octavo.wire.codec import Codec
from octavo.wire.worker import Heartbeat, WorkerToCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.actors.child import Outbox, Parent

__all__ = ["HeartbeatThread"]

_SECONDS = 1.0


class HeartbeatThread:
    """A daemon thread with a socket of its own. It reports, and never judges: the core does."""

    def __init__(self, parent: Parent, rank: int, interval_s: float = _SECONDS) -> None:
        self._parent = parent
        self._rank = rank
        self._interval_s = interval_s
        self._progress: Callable[[], tuple[str, int, int]] = lambda: ("loading", 0, 0)
        self._codec: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start to beat."""
        self._thread.start()

    def follow(self, progress: Callable[[], tuple[str, int, int]]) -> None:
        """Report what `progress` says from now on; it is called in the heartbeat's thread."""
        self._progress = progress

    def stop(self) -> None:
        """Beat no more; the thread's socket is not used afterwards."""
        self._ended.set()
        self._thread.join(timeout=self._interval_s)

    def _run(self) -> None:
        outbox = self._parent.outbox()
        while not self._ended.wait(self._interval_s):
            self._beat(outbox)

    def _beat(self, outbox: Outbox) -> None:
        phase, step, layer = self._progress()
        try:
            outbox.send([self._codec.encode(Heartbeat(self._rank, phase, step, layer))])
        except zmq.ContextTerminated:  # the process is on its way out
            self._ended.set()
