"""A frontend in the engine core's own process: requests come from other threads, deltas go back to them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import anyio

from octavo.wire.frontend import AbortRequests, AddRequest, Delta, RequestRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from octavo.engine_core.frontend import FrontendEvent
    from octavo.wire.frontend import EngineInfo, Stats

__all__ = ["Channel", "LocalEvent", "LocalFrontend"]

LocalEvent = Delta | RequestRejected


class Channel(Protocol):
    """Where the engine puts what happens to requests. Both methods are called in the engine's thread and never wait."""

    def put(self, events: Sequence[LocalEvent]) -> None:
        """Take what one step brought for the requests of this channel."""

    def fail(self, message: str) -> None:
        """Take the news that the engine is gone; nothing follows."""


class LocalFrontend:
    """Implements `Frontend` without a wire. All methods belong to the engine's event loop."""

    def __init__(self, on_ready: Callable[[EngineInfo], None]) -> None:
        """`on_ready` is called whenever the workers have become ready."""
        self._on_ready = on_ready
        self._events: deque[FrontendEvent] = deque()
        self._arrived: anyio.Event | None = None  # of the call of `receive` that waits
        self._channels: dict[int, Channel] = {}  # of open requests
        self._ended: str | None = None

    def submit(self, requests: Iterable[AddRequest], channel: Channel) -> None:
        """Queue requests; what happens to them goes to the channel."""
        if self._ended is not None:
            channel.fail(self._ended)
            return
        for request in requests:
            self._channels[request.id] = channel
            self._events.append(request)
        self._notify()

    def abort(self, ids: Iterable[int]) -> None:
        """Take requests out; the channel hears no more of them. Ids of requests that have ended are ignored."""
        known = tuple(number for number in ids if self._channels.pop(number, None) is not None)
        if known:
            self._events.append(AbortRequests(known, "client"))
            self._notify()

    def end(self, message: str) -> None:
        """Tell all channels, and those that come later, that the engine is gone."""
        self._ended = message
        for channel in set(self._channels.values()):
            channel.fail(message)
        self._channels.clear()
        self._events.clear()

    async def receive(self) -> FrontendEvent:
        """Wait for the next event and take it."""
        while not self._events:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._events.popleft()

    def receive_nowait(self) -> FrontendEvent | None:
        """Take the next event if there is one."""
        return self._events.popleft() if self._events else None

    def ready(self, info: EngineInfo) -> None:
        """Pass it on."""
        self._on_ready(info)

    def fault(self, kind: str, message: str, *, restarting: bool) -> None:
        """Nothing to do: while workers restart requests wait, and `end` follows when they do not."""

    def deliver(self, step: int, deltas: Sequence[Delta]) -> None:
        """Hand each channel its deltas at once: a reader is woken once a step, whatever the number of its requests."""
        by_channel: dict[Channel, list[LocalEvent]] = {}
        for delta in deltas:
            channel = self._channels.get(delta.id)
            if channel is None:
                continue  # aborted meanwhile
            by_channel.setdefault(channel, []).append(delta)
            if delta.finish is not None:
                del self._channels[delta.id]
        for channel, mine in by_channel.items():
            channel.put(mine)

    def reject(self, request: AddRequest, code: str, message: str, param: str | None = None) -> None:
        """Pass it on."""
        channel = self._channels.pop(request.id, None)
        if channel is not None:
            channel.put([RequestRejected(request.id, request.attempt, code, message, param)])

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        """Nothing to do: nobody sends a Control here."""

    def stats(self, stats: Stats) -> None:
        """Nothing to do: there are no metrics without a server."""

    async def drain(self, reason: str) -> bool:
        """Return at once: nothing is under way to anywhere."""
        return True

    def _notify(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
