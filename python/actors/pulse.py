"""The pulse of a process that a `StdoutLink` watches: an event a second while its event loop runs."""

from __future__ import annotations

import threading

import anyio

from octavo.actors.child import report

__all__ = ["PULSE", "beat"]

#: The event's name.
PULSE = "pulse"
_SECONDS = 1.0


async def beat(interval_s: float = _SECONDS) -> None:
    """Report a pulse each `interval_s` until cancelled, as long as the loop turns.

    A thread reports, so that a parent that reads nothing never holds up the loop.
    """
    turns = [0]
    ended = threading.Event()

    def watch() -> None:
        seen = -1
        while not ended.wait(interval_s):
            if turns[0] != seen:
                seen = turns[0]
                report(PULSE)

    threading.Thread(target=watch, name="pulse", daemon=True).start()
    try:
        while True:
            turns[0] += 1
            await anyio.sleep(interval_s / 2)
    finally:
        ended.set()
