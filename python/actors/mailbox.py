"""The bounded queue in front of an actor."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from octavo.actors.errors import MailboxClosed, MailboxFull

__all__ = ["Mailbox"]

M = TypeVar("M")


class Mailbox(Generic[M]):
    """Hold at most `capacity` messages, and `control_capacity` urgent ones that are taken first.

    Any task of the event loop may put; one task takes. Putting never waits. Not for threads.
    """

    def __init__(self, capacity: int, control_capacity: int = 64) -> None:
        self.capacity = capacity
        self.control_capacity = control_capacity
        self._messages: deque[M] = deque()
        self._control: deque[M] = deque()
        self._arrived = anyio.Event()
        self._guard = anyio.ResourceGuard("taking from")
        self._closed = False

    def __len__(self) -> int:
        return len(self._control) + len(self._messages)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def put_nowait(self, message: M, *, control: bool = False) -> None:
        """Add a message at the end of its lane.

        Raises MailboxFull when the lane is full, MailboxClosed after `close`.
        """
        if self._closed:
            raise MailboxClosed("the mailbox is closed")
        lane, capacity = (self._control, self.control_capacity) if control else (self._messages, self.capacity)
        if len(lane) >= capacity:
            raise MailboxFull(f"the mailbox holds {capacity} messages already; try again later")
        lane.append(message)
        self._arrived.set()

    async def ready(self) -> bool:
        """Wait until there is a message. Return False when none will come: the mailbox is closed and empty."""
        with self._guard:
            if len(self) or self._closed:
                await anyio.lowlevel.checkpoint()
            while not len(self) and not self._closed:
                self._arrived = anyio.Event()
                await self._arrived.wait()
        return len(self) > 0

    async def get(self) -> M:
        """Wait for a message and take it, control messages first. A cancelled call takes none.

        Raises MailboxClosed when the mailbox is closed and empty.
        """
        if not await self.ready():
            raise MailboxClosed("the mailbox is closed and empty")
        return self.get_nowait()

    def get_nowait(self) -> M:
        """Take a message, control messages first. Raises anyio.WouldBlock when there is none."""
        if self._control:
            return self._control.popleft()
        if self._messages:
            return self._messages.popleft()
        raise anyio.WouldBlock

    async def drain(self) -> list[M]:
        """Wait for one message, then take all that are there, control messages first.

        Raises MailboxClosed when the mailbox is closed and empty.
        """
        return [await self.get(), *self.clear()]

    def clear(self) -> list[M]:
        """Take all messages without waiting."""
        messages = [*self._control, *self._messages]
        self._control.clear()
        self._messages.clear()
        return messages

    def close(self) -> None:
        """Accept no more messages. Those already here can still be taken."""
        self._closed = True
        self._arrived.set()

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._messages) <= self.capacity
        assert len(self._control) <= self.control_capacity
