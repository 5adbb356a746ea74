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
    from collections.abc import Callable
    from typing import Self

    Context = zmq.Context[zmq.Socket[bytes]]

__all__ = ["Frames", "MemorySocket", "Socket", "ZmqSocket", "memory_pair"]

#: One message: its frames, in order.
Frames = Sequence[bytes]

#: Bytes of a frame that a bound socket takes: far more than any message has.
MAX_FRAME_BYTES = 1 << 30

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
    into the socket, a send too, may use that signal up. So all events are looked at after each signal and each send.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        socket.linger = 0
        self._socket = socket
        self._fd = int(socket.fd)
        self._waiting: dict[int, anyio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def bind(
        cls, context: Context, kind: int, endpoint: str, *, hwm: int = 1000, max_frame: int = MAX_FRAME_BYTES
    ) -> Self:
        """Open a socket of a ZeroMQ type (zmq.PUSH, ...) that peers connect to; `hwm` messages queue per peer.

        A peer that announces a frame of more than `max_frame` bytes is disconnected before memory is taken for it.
        """
        socket = context.socket(kind)
        socket.maxmsgsize = max_frame
        return cls._attach(socket, socket.bind, endpoint, hwm)

    @classmethod
    def connect(cls, context: Context, kind: int, endpoint: str, *, hwm: int = 1000) -> Self:
        """Open a socket that connects, and connects again whenever its peer comes back."""
        socket = context.socket(kind)
        return cls._attach(socket, socket.connect, endpoint, hwm)

    def send(self, frames: Frames) -> None:
        """Queue a message. Raises SendFull, also while nobody has connected to a bound socket, or SocketClosed."""
        self._check_open()
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            raise SendFull("the socket's queue is full, or nobody is connected; try again later") from None
        finally:
            self._look()

    async def writable(self) -> None:
        """Wait until a `send` has a place in the queue. Raises SocketClosed."""
        await anyio.lowlevel.checkpoint()
        await self._wait(zmq.POLLOUT)

    async def receive(self) -> list[bytes]:
        """Wait for a message and take it. A cancelled call takes none. Raises SocketClosed."""
        await anyio.lowlevel.checkpoint()
        await self._wait(zmq.POLLIN)
        return self._socket.recv_multipart(zmq.NOBLOCK)

    async def drain(self) -> list[list[bytes]]:
        """Wait for a message, then take all that are there, up to a limit. Raises SocketClosed."""
        messages = [await self.receive()]
        try:
            while len(messages) < DRAIN_LIMIT:
                messages.append(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return messages

    def close(self) -> None:
        """Close and drop what is queued. Waiting calls raise SocketClosed. Idempotent."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._loop = None
        self._socket.close(0)
        while self._waiting:
            self._waiting.popitem()[1].set()

    @classmethod
    def _attach(cls, socket: zmq.Socket[bytes], attach: Callable[[str], object], endpoint: str, hwm: int) -> Self:
        socket.set_hwm(hwm)
        try:
            attach(endpoint)
        except BaseException:
            socket.close(0)
            raise
        return cls(socket)

    def _check_open(self) -> None:
        if self._socket.closed:
            raise SocketClosed("the socket is closed")

    async def _wait(self, flag: int) -> None:
        self._check_open()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._fd, self._look)
        while not self._look() & flag:
            await self._waiting.setdefault(flag, anyio.Event()).wait()
            self._check_open()

    def _look(self) -> int:
        """Read the socket's events, which uses the signal up, and wake those who wait for them."""
        events = int(self._socket.getsockopt(zmq.EVENTS))
        for flag in (zmq.POLLIN, zmq.POLLOUT):
            if events & flag and (event := self._waiting.pop(flag, None)):
                event.set()
        return events


class MemorySocket:
    """One end of a pair within the process; see `memory_pair`."""

    def __init__(self, capacity: int) -> None:
        self.peer = self
        self._capacity = capacity
        self._queue: deque[list[bytes]] = deque()
        self._changed = anyio.Event()
        self._closed = False

    def send(self, frames: Frames) -> None:
        """Hand a message to the peer. Raises SendFull, or SocketClosed when either end is closed."""
        self._check_open()
        if not self.peer._has_room():
            raise SendFull(f"the peer holds {self._capacity} messages already; try again later")
        self.peer._queue.append([bytes(frame) for frame in frames])
        self.peer._notify()

    async def writable(self) -> None:
        """Wait until the peer has room. Raises SocketClosed when either end is closed."""
        await anyio.lowlevel.checkpoint()
        while not self.peer._has_room():
            self._check_open()
            await self._changed.wait()
        self._check_open()

    async def receive(self) -> list[bytes]:
        """Wait for a message and take it. Raises SocketClosed when there is none and either end is closed."""
        await anyio.lowlevel.checkpoint()
        while not self._queue:
            self._check_open()
            await self._changed.wait()
        message = self._queue.popleft()
        self.peer._notify()
        return message

    async def drain(self) -> list[list[bytes]]:
        """Wait for a message, then take all that are there. Raises SocketClosed as `receive` does."""
        messages = [await self.receive(), *self._queue]
        self._queue.clear()
        return messages

    def close(self) -> None:
        """Close this end and drop what it holds. Idempotent."""
        self._closed = True
        self._queue.clear()
        self._notify()
        self.peer._notify()

    def _has_room(self) -> bool:
        return len(self._queue) < self._capacity

    def _check_open(self) -> None:
        if self._closed or self.peer._closed:
            raise SocketClosed("this socket or its peer is closed")

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def memory_pair(capacity: int = 1000) -> tuple[MemorySocket, MemorySocket]:
    """Return two connected sockets; each holds at most `capacity` messages that wait to be received."""
    one, other = MemorySocket(capacity), MemorySocket(capacity)
    one.peer, other.peer = other, one
    return one, other
