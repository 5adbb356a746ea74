"""How far loading is: a bar on a terminal, lines in a log elsewhere; and a sign of life for the heartbeat."""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from octavo.layers.batch import Progress

__all__ = ["LoadProgress"]

_log = logging.getLogger(__name__)

_SECONDS = 2.0


class LoadProgress:
    """Counts tensors; any thread may call `advance`. `show`: this rank is the one that reports."""

    def __init__(self, total: int, heartbeat: Progress, show: bool = True) -> None:
        self._total = total
        self._heartbeat = heartbeat
        self._show = show
        self._done = 0
        self._said = time.monotonic()
        self._lock = threading.Lock()
        self._bar: Any = None  # rich.progress.Progress
        self._context: AbstractContextManager[Any] = nullcontext()
        if show and sys.stderr.isatty():
            self._bar = self._context = _bar()
            self._task = self._bar.add_task("loading weights", total=total)

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def advance(self) -> None:
        """Count one more tensor that is loaded."""
        with self._lock:
            self._done += 1
            self._heartbeat.layer += 1
            now = time.monotonic()
            due = now - self._said >= _SECONDS
            if self._bar is not None:
                self._bar.advance(self._task)
            elif self._show and due:
                _log.info("loading weights: %d of %d tensors", self._done, self._total)
            if due:
                self._said = now


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
