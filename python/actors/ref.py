"""The address of an actor: how others reach it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from octavo.actors.errors import ActorDead, AskTimeout, MailboxClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.actors.mailbox import Mailbox

__all__ = ["Ref", "Reply"]

M = TypeVar("M")
T = TypeVar("T")


class Reply(Generic[T]):
    """Where the answer to one `ask` goes. Travels inside the message; the first answer counts."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._value: T
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer already, or nobody waits any more."""
        return self._done.is_set()

    def set(self, value: T) -> None:
        """Answer."""
        if not self.done:
            self._value = value
            self._done.set()

    def fail(self, error: Exception) -> None:
        """Answer with an error, which `ask` raises."""
        if not self.done:
            self._error = error
            self._done.set()

    async def wait(self) -> T:
        """Return the answer, or raise the error that was answered."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Ref(Generic[M]):
    """Address one incarnation of an actor. A restarted actor has a new one; the old says ActorDead for ever.

    `incarnation` is a random u64.
    """

    def __init__(self, name: str, mailbox: Mailbox[M]) -> None:
        self.name = name
        self.incarnation = secrets.randbits(64)
        self._mailbox = mailbox
        self._asked: set[Reply[Any]] = set()

    def __repr__(self) -> str:
        return f"Ref({self.name!r}, {self.incarnation:016x})"

    @property
    def alive(self) -> bool:
        """Whether the actor still accepts messages."""
        return not self._mailbox.closed

    def tell(self, message: M, *, control: bool = False) -> None:
        """Put a message into the mailbox, with `control` ahead of the others. Never waits.

        An accepted message is handled unless the actor fails or is cancelled first.
        Raises MailboxFull or ActorDead.
        """
        try:
            self._mailbox.put_nowait(message, control=control)
        except MailboxClosed:
            raise ActorDead(f"{self.name} has ended") from None

    async def ask(self, make: Callable[[Reply[T]], M], *, timeout_s: float, control: bool = False) -> T:
        """Send the message that `make` builds around a `Reply` and return the answer.

        Raises MailboxFull, ActorDead (also when the actor ends before it answers), AskTimeout, or what the
        actor answered with `Reply.fail`.
        """
        reply: Reply[T] = Reply()
        self.tell(make(reply), control=control)
        self._asked.add(reply)
        try:
            with anyio.fail_after(timeout_s):
                return await reply.wait()
        except TimeoutError:
            raise AskTimeout(f"{self.name} did not answer within {timeout_s:g} s") from None
        finally:
            reply.fail(AskTimeout("nobody waits for this answer"))
            self._asked.discard(reply)

    def end(self) -> None:
        """Refuse further messages and fail the open asks. Called by the actor when it ends."""
        self._mailbox.close()
        self._mailbox.clear()
        for reply in self._asked:
            reply.fail(ActorDead(f"{self.name} ended before it answered"))
