"""The output thread: waits for steps that a device still runs, and sends their results."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

from octavo.wire.worker import StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.workers.body import PendingStep

__all__ = ["OutputThread"]


class OutputThread:
    """Sends results in the order in which they were put, so that the device thread never waits for one.

    After a step that failed nothing more is sent: `failed` is that step and what it raised.
    """

    def __init__(self, connect: Callable[[], Callable[[StepResult], None]]) -> None:
        """Start. `connect` is called in the thread and returns what sends from it."""
        self._connect = connect
        self._queue: SimpleQueue[StepResult | PendingStep | None] = SimpleQueue()
        self.failed: tuple[int, Exception] | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def put(self, result: StepResult | PendingStep) -> None:
        """Send `result` behind those before it, once it is there."""
        self._queue.put(result)

    def close(self, timeout_s: float) -> None:
        """Send what was put, within `timeout_s`; nothing can be put any more."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        send = self._connect()
        while (item := self._queue.get()) is not None:
            try:
                send(item if isinstance(item, StepResult) else item.wait())
            except Exception as error:
                self.failed = (item.step, error)
                return
