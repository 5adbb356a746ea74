"""Sockets that carry messages of frames: ZeroMQ under asyncio's event loop, and an in-memory pair for tests.

No send waits: a full queue is an error that the sender sees, so nothing here can hold up its task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel
import zmq

from octavo.actors.errors import SendFull, SocketClosed

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Frames", "MemorySocket", "Socket", "ZmqSocket", "memory_pair"]

#: One message: its frames, in order.
Frames = Sequence[bytes]

#: Messages that one `drain` takes at most, so that a flood does not keep the event loop.
DRAIN_LIMIT = 1024


class Socket(Protocol):
    """One end of a way for messages. One task receives; any task of the event loop sends."""

    def send(self, frames: Frames) -> None:
        """Queue a message. Raises SendFull instead of waiting, SocketClosed after `close`."""

    async def writable(self) -> None:
        """Wait until a `send` has a place in the queue. Raises SocketClosed."""

    async def receive(self) -> list[bytes]:
        """Wait for a message and take it. A cancelled call takes none. Raises SocketClosed."""

    async def drain(self) -> list[list[bytes]]:
        """Wait for a message, then take all that are there, up to a limit. Raises SocketClosed."""

    def close(self) -> None:
        """Close and drop what is queued. Waiting calls raise SocketClosed. Idempotent."""


class ZmqSocket:
    """A ZeroMQ socket on the running asyncio loop.

    libzmq's file descriptor is edge-triggered: it becomes readable when something *may* have changed, and every call
    into the socket, a send too, may use that signal up. So events are looked at after each signal and each send.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        socket.linger = 0
        self._socket = socket
        self._fd = int(socket.fd)
        self._changed = anyio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def bind(cls, context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, *, hwm: int = 1000) -> Self:
        """Open a socket of a ZeroMQ type (zmq.PUSH, ...) that peers connect to; `hwm` messages queue per peer."""
        return cls._open(context, kind, hwm, zmq.Socket.bind, endpoint)

    @classmethod
    def connect(cls, context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, *, hwm: int = 1000) -> Self:
        """Open a socket that connects, and connects again whenever its peer comes back."""
        return cls._open(context, kind, hwm, zmq.Socket.connect, endpoint)

    def send(self, frames: Frames) -> None:
        """Queue a message. Raises SendFull, also while nobody has connected to a bound socket, or SocketClosed."""
        raise NotImplementedError

    async def writable(self) -> None:
        """Wait until a `send` has a place in the queue. Raises SocketClosed."""

    async def receive(self) -> list[bytes]:
        """Wait for a message and take it. A cancelled call takes none. Raises SocketClosed."""
        raise NotImplementedError

    async def drain(self) -> list[list[bytes]]:
        """Wait for a message, then take all that are there, up to a limit. Raises SocketClosed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close and drop what is queued. Waiting calls raise SocketClosed. Idempotent."""


class MemorySocket:
    """One end of a pair within the process."""

    def send(self, frames: Frames) -> None:
        """Hand a message to the peer. Raises SendFull, or SocketClosed when either end is closed."""
        raise NotImplementedError

    async def writable(self) -> None:
        """Wait until the peer has room. Raises SocketClosed."""

    async def receive(self) -> list[bytes]:
        """Wait for a message and take it. Raises SocketClosed when there is none and either end is closed."""
        raise NotImplementedError

    async def drain(self) -> list[list[bytes]]:
        """Wait for a message, then take all that are there. Raises SocketClosed as `receive` does."""
        raise NotImplementedError

    def close(self) -> None:
        """Close this end. Idempotent."""


def memory_pair(capacity: int = 1000) -> tuple[MemorySocket, MemorySocket]:
    """Return two connected sockets; each holds at most `capacity` messages on their way to it."""
    raise NotImplementedError
