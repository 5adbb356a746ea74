"""An engine core in this process, on an event loop and a thread of its own; its workers are processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import anyio
import zmq

from octavo.engine_core.local import LocalFrontend
from octavo.engine_core.running import only_error, run_core
from octavo.errors import EngineError, OctavoError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.config import EngineConfig
    from octavo.engine_core.local import Channel
    from octavo.wire.frontend import AddRequest, EngineInfo

__all__ = ["EngineThread"]

_log = logging.getLogger("octavo.llm")

#: For workers to finish a step, and for those that do not, to be killed.
_STOP_TIMEOUT_S = 60.0


class EngineThread:
    """Run an engine until `close`. Methods may be called from any thread.

    The thread lives as long as the workers: the kernel kills a worker when the thread that started it ends. It is a
    daemon, so that the end of a program does not wait for it; whoever makes an EngineThread closes it by then.
    """

    def __init__(self, config: EngineConfig) -> None:
        """Start the thread; `ready` says when the engine can work."""
        self.ready: Future[EngineInfo] = Future()  # fails with what ended the engine before it was ready
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._frontend = LocalFrontend(self._on_ready)
        self._stop: Callable[[], None] | None = None
        self._started = threading.Event()  # the loop takes calls, or never will
        self._failure: BaseException | None = None
        self._lock = threading.Lock()  # over the two below: what is submitted while the loop ends must not be lost
        self._backlog: list[tuple[Sequence[AddRequest], Channel]] = []
        self._ended = False
        self._thread = threading.Thread(target=self._main, name="octavo-engine", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[AddRequest], channel: Channel) -> None:
        """Queue requests; what happens to them goes to the channel. Raises EngineError when the engine has ended."""
        self._started.wait()
        with self._lock:
            if self._ended:
                raise EngineError(self._why())
            self._backlog.append((requests, channel))
        self._call(self._take)

    def abort(self, ids: Sequence[int]) -> None:
        """Take requests out, if the engine still runs."""
        self._call(self._frontend.abort, ids)

    def close(self) -> None:
        """Stop the engine and its workers; wait, bounded, until all are gone. Again: nothing."""
        self._started.wait()
        if self._stop is not None:
            self._call(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_TIMEOUT_S)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        """Have the engine's loop call something, unless it has ended."""
        self._started.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)

    def _take(self) -> None:
        with self._lock:
            backlog, self._backlog = self._backlog, []
        for requests, channel in backlog:
            self._frontend.submit(requests, channel)

    def _on_ready(self, info: EngineInfo) -> None:
        # The engine freezes what is alive when it becomes ready; in this process that would be the user's too.
        gc.unfreeze()
        if not self.ready.done():
            self.ready.set_result(info)

    def _main(self) -> None:
        try:
            anyio.run(self._run)
        except BaseException as error:  # the thread's last words go to whoever waits
            self._failure = only_error(error)
            if not isinstance(self._failure, OctavoError):
                _log.exception("the engine failed")
        finally:
            self._started.set()
            with self._lock:
                self._ended = True
            self._frontend.end(self._why())
            self._take()  # what came too late is told so
            if not self.ready.done():
                failure = self._failure
                self.ready.set_exception(failure if isinstance(failure, OctavoError) else EngineError(self._why()))

    def _why(self) -> str:
        return "the engine was closed" if self._failure is None else f"the engine has ended: {self._failure}"

    async def _run(self) -> None:
        with zmq.Context[zmq.Socket[bytes]]() as context:
            await run_core(self._config, self._frontend, context, on_start=self._on_start)

    def _on_start(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._started.set()
