"""The other side of a `ProcessActor`: what its process calls. Threads and blocking sockets, no event loop."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from typing import Self

    from octavo.actors.transport import Frames

__all__ = ["Inbox", "Outbox", "Parent", "register_dump", "watch_parent"]


def watch_parent() -> None:
    """Tie this process to its parent's life; call it first of all, in the main thread.

    The kernel kills this process when the thread that started it ends (PR_SET_PDEATHSIG, Linux), and a daemon thread
    leaves with os._exit at the end of file on stdin, the parent's lifeline. Stdin becomes /dev/null for everybody else.
    """
    raise NotImplementedError


def register_dump(dump_signal: signal.Signals = signal.SIGUSR1) -> None:
    """Write the stacks of all threads to stderr when `dump_signal` comes, even while the interpreter is stuck."""
    raise NotImplementedError


class Parent:
    """The process actor that started this process, as found in the environment. Owns the ZeroMQ context.

    name: of the actor, e.g. "worker-0". incarnation: u64, to be repeated in the hello.
    """

    name: str
    incarnation: int

    @classmethod
    def find(cls) -> Self:
        """Read the environment that `ZmqLink` set. Raises ConfigError when this process was started by other means."""
        raise NotImplementedError

    def inbox(self) -> Inbox:
        """Connect for messages from the parent. Once; for one thread."""
        raise NotImplementedError

    def outbox(self) -> Outbox:
        """Connect for messages to the parent. Once for each thread that sends."""
        raise NotImplementedError

    def close(self, linger_s: float = 2.0) -> None:
        """Close all sockets and wait until what was sent is on its way, `linger_s` at most. No thread may use them."""


class Inbox:
    """Messages from the parent, for one thread."""

    def receive(self, timeout_s: float | None = None) -> list[bytes] | None:
        """Block for the next message; return None when `timeout_s` passed (None: never passes)."""
        raise NotImplementedError


class Outbox:
    """Messages to the parent, for one thread."""

    def send(self, frames: Frames) -> None:
        """Send a message; blocks while the parent does not take what is queued."""
        raise NotImplementedError
