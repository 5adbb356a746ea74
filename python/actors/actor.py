"""A task that owns some state and handles one message at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio

from octavo.actors.mailbox import Mailbox
from octavo.actors.ref import Ref

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

__all__ = ["Actor", "Child"]

M = TypeVar("M")


class Child(Protocol):
    """What a supervisor looks after: an Actor, a ProcessActor, another Supervisor."""

    name: str

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Live. Call `task_status.started` when ready; return when asked to stop; raise when failed.

        Runs once. Cancellation ends it quickly and leaves nothing behind.
        """

    def stop(self) -> None:
        """Ask `run` to finish its work and return. Never waits; may be called at any time, and twice."""


class Actor(ABC, Generic[M]):
    """Own state in one task. Subclasses hold it in private attributes that only their own methods touch.

    A handler has no `await` between reading and writing its state, except where its docstring says so.
    """

    def __init__(self, name: str, *, capacity: int = 1024, stop_timeout_s: float = 5.0) -> None:
        self.name = name
        self._stop_timeout_s = stop_timeout_s
        self._mailbox: Mailbox[M] = Mailbox(capacity)
        self.ref: Ref[M] = Ref(name, self._mailbox)

    async def on_start(self) -> None:
        """Prepare; messages wait in the mailbox meanwhile. If it raises, `on_stop` does not run."""

    @abstractmethod
    async def handle(self, message: M) -> None:
        """Handle one message. An exception ends the actor; its supervisor learns of it."""

    async def idle(self) -> None:
        """Act on a batch: called after the messages that one wake-up found have been handled one by one."""

    async def on_stop(self) -> None:
        """Clean up after the last message, also after a failure or a cancellation.

        Shielded from cancellation, and abandoned after `stop_timeout_s`.
        """

    async def run(self, *, task_status: TaskStatus[Ref[M]] = anyio.TASK_STATUS_IGNORED) -> None:
        """Start, report ready with the ref, handle messages until stopped, clean up.

        Raises what a hook raised.
        """
        try:
            await self.on_start()
            task_status.started(self.ref)
            await self._serve()
        finally:
            self.ref.end()

    def stop(self) -> None:
        """Accept no more messages; `run` returns when those in the mailbox are handled."""
        self._mailbox.close()

    async def _serve(self) -> None:
        try:
            while await self._mailbox.ready():
                for _ in range(len(self._mailbox)):
                    await self.handle(self._mailbox.get_nowait())
                await self.idle()
        finally:
            with anyio.move_on_after(self._stop_timeout_s, shield=True):
                await self.on_stop()
