"""Run a batch of requests to its end, from a thread that waits."""

from __future__ import annotations

import itertools
import logging
import queue
from typing import TYPE_CHECKING

from octavo.errors import EngineError
from octavo.llm.progress import PERIOD_S, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine_core.local import LocalEvent
    from octavo.llm.child import Child
    from octavo.llm.engine import EngineThread
    from octavo.llm.request import Request

__all__ = ["run_batch"]

_log = logging.getLogger("octavo.llm")

#: Requests of a batch that the engine holds at once: more than run, so that it never waits for us.
_IN_ENGINE = 1024


class _Inbox:
    """A `Channel` that a thread waits at."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Sequence[LocalEvent] | str] = queue.SimpleQueue()

    def put(self, events: Sequence[LocalEvent]) -> None:
        self._events.put(events)

    def fail(self, message: str) -> None:
        self._events.put(message)

    def take(self, timeout_s: float) -> Sequence[LocalEvent]:
        """Return the next events, or none when none came in time. Raises EngineError when the engine is gone."""
        try:
            found = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return ()
        if isinstance(found, str):
            raise EngineError(found)
        return found


def run_batch(engine: EngineThread, requests: Sequence[Request], *, progress: bool) -> None:
    """Run requests until each has finished. One that the engine fails on has "error" as its finish.

    Raises EngineError when the engine ends before that. Whatever ends the wait, no request goes on in the engine.
    """
    inbox = _Inbox()
    bar = Progress(progress)
    children = [child for request in requests for child in request.children]
    waiting = iter(children)
    open_: dict[int, Child] = {}

    def top_up() -> None:
        more = list(itertools.islice(waiting, _IN_ENGINE - len(open_)))
        open_.update((child.id, child) for child in more)
        if more:
            engine.submit([child.message() for child in more], inbox)

    with bar.over(len(children)):
        try:
            top_up()
            while open_:
                stopped = []
                for event in inbox.take(PERIOD_S):
                    child = open_.get(event.id)
                    if child is None:
                        continue  # it ended by a stop string, and the engine did not know yet
                    before = child.num_tokens
                    if child.advance(event):
                        stopped.append(child.id)
                    bar.tokens += child.num_tokens - before
                    if child.finish is not None:
                        _finished(open_.pop(child.id), bar)
                if stopped:
                    engine.abort(stopped)
                if len(open_) <= _IN_ENGINE // 2:
                    top_up()
                bar.tick()
        finally:
            if open_:
                engine.abort(list(open_))


def _finished(child: Child, bar: Progress) -> None:
    bar.done += 1
    bar.prompt_tokens += child.num_prompt_tokens
    if child.finish == "error":
        _log.warning("%s failed: %s", child.name, child.error)
