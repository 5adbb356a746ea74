"""Sockets between engine cores and the coordinator, which lives in the core of rank 0."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import anyio
import zmq

from octavo.actors.errors import SendFull
from octavo.actors.transport import ZmqSocket
from octavo.engine_core.waves.coordinator import WaveCoordinator
from octavo.wire.codec import Codec
from octavo.wire.waves import Report, ToMember

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

__all__ = ["WaveLink", "coordinate"]

#: What is lost on the way is said again after so long.
_REPEAT_S = 0.5


class WaveLink:
    """A core's way to the coordinator. Nothing queues up while it is away."""

    def __init__(self, socket: ZmqSocket) -> None:
        self._socket = socket
        self._reports: Codec[Report] = Codec(Report, "report of an engine core")
        self._letters: Codec[ToMember] = Codec(ToMember, "message of a wave coordinator")

    @classmethod
    def connect(cls, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, rank: int) -> Self:
        """Open the link, whether the coordinator is there already or not."""
        socket = context.socket(zmq.DEALER)
        socket.routing_id = _name(rank)
        socket.immediate = True
        socket.reconnect_ivl, socket.reconnect_ivl_max = 20, 500
        socket.connect(endpoint)
        return cls(ZmqSocket(socket))

    def send(self, report: Report) -> None:
        """Send a report, or lose it."""
        with contextlib.suppress(SendFull):  # said again by the timer
            self._socket.send([self._reports.encode(report)])

    async def run(self, take: Callable[[ToMember], None], repeat: Callable[[], None]) -> None:
        """Hand on what the coordinator says, and call `repeat` now and then, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_every, _REPEAT_S, repeat)
                while True:
                    frames = await self._socket.receive()
                    take(self._letters.decode(frames[0]))
        finally:
            self._socket.close()


async def coordinate(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, size: int) -> None:
    """Be the coordinator of `size` ranks until cancelled."""
    socket = context.socket(zmq.ROUTER)
    socket.router_handover = True  # a restarted core has the name of the one before
    socket.bind(endpoint)
    coordinator, door = WaveCoordinator(size), ZmqSocket(socket)
    reports: Codec[Report] = Codec(Report, "report of an engine core")
    letters: Codec[ToMember] = Codec(ToMember, "message of a wave coordinator")
    try:
        while True:
            _, frame = await door.receive()
            for rank, letter in coordinator.take(reports.decode(frame)):
                with contextlib.suppress(SendFull):  # said again when its rank reports
                    door.send([_name(rank), letters.encode(letter)])
    finally:
        door.close()


def _name(rank: int) -> bytes:
    return f"rank-{rank}".encode()


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        await anyio.sleep(seconds)
        act()
