"""Publishes what the prefix cache holds, over ZeroMQ, with replay of what was missed. The frames are vLLM's."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import zmq

from octavo.actors.errors import SendFull, SocketClosed
from octavo.actors.transport import Socket, ZmqSocket
from octavo.engine_core.cache.events import KvEvent  # noqa: TC001  # msgspec reads it
from octavo.errors import ConfigError
from octavo.wire.frontend import Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from octavo.config import KvEventsConfig

__all__ = ["END_OF_REPLAY", "KvEventBatch", "KvPublisher"]

_log = logging.getLogger(__name__)

#: Stands for a sequence number at the end of a replay: -1 as 8 bytes.
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


class KvEventBatch(Record, frozen=True):
    """The events of one or more steps."""

    ts: float  # Unix time, seconds
    events: tuple[KvEvent, ...]
    data_parallel_rank: int | None = None


class KvPublisher:
    """Numbers batches and sends each as [topic, sequence number, MessagePack of the batch] to all subscribers.

    A slow subscriber loses messages, and sees it by a gap in the numbers (u64, big endian, from 0). Then it asks the
    replay socket with [b"", first number] and gets [b"", number, batch] for each batch from there on that is still
    kept, and [b"", END_OF_REPLAY, b""].
    """

    def __init__(self, publish: Socket, replay: Socket | None, config: KvEventsConfig, rank: int = 0) -> None:
        """Own the sockets and close them; `replay` is a ROUTER."""
        self._publish = publish
        self._replay = replay
        self._topic = config.topic.encode()
        self._rank = rank
        self._next = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    def bind(cls, context: zmq.Context[zmq.Socket[bytes]], config: KvEventsConfig, rank: int = 0) -> Self:
        """Open the sockets where the configuration says. Raises ConfigError if an address cannot be used."""
        publish = _bind(context, zmq.PUB, config.endpoint, config.hwm, "endpoint")
        try:
            replay = config.replay_endpoint and _bind(
                context, zmq.ROUTER, config.replay_endpoint, config.hwm, "replay_endpoint"
            )
        except ConfigError:
            publish.close()
            raise
        return cls(publish, replay or None, config, rank)

    def publish(self, events: Sequence[KvEvent]) -> None:
        """Send a batch, unless it is empty. Never waits."""
        if not events:
            return
        body = self._encoder.encode(KvEventBatch(time.time(), tuple(events), self._rank))
        number, self._next = self._next, self._next + 1
        self._kept.append((number, body))
        try:
            self._publish.send([self._topic, number.to_bytes(8, "big"), body])
        except SendFull:  # a PUB socket drops by itself; kept for replay
            _log.debug("batch %d of KV events is not sent", number)

    async def run(self) -> None:
        """Answer replay requests until cancelled or closed."""
        if self._replay is None:
            return
        try:
            while True:
                for frames in await self._replay.drain():
                    self._answer(self._replay, frames)
        except SocketClosed:
            return

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        self._publish.close()
        if self._replay is not None:
            self._replay.close()

    def _answer(self, replay: Socket, frames: list[bytes]) -> None:
        if len(frames) != 3 or len(frames[2]) != 8:
            _log.warning("a replay request for KV events has %d frames; expected [b'', 8 bytes]", len(frames) - 1)
            return
        peer, first = frames[0], int.from_bytes(frames[2], "big")
        try:
            for number, body in self._kept:
                if number >= first:
                    replay.send([peer, b"", number.to_bytes(8, "big"), body])
            replay.send([peer, b"", END_OF_REPLAY, b""])
        except SendFull:
            _log.warning("a subscriber of KV events does not take its replay; it is cut short")


def _bind(context: zmq.Context[zmq.Socket[bytes]], kind: int, endpoint: str, hwm: int, name: str) -> ZmqSocket:
    try:
        return ZmqSocket.bind(context, kind, endpoint, hwm=hwm)
    except zmq.ZMQError as error:
        raise ConfigError(
            f"--kv-events-config: {name} {endpoint!r} cannot be used: {error.strerror}", "kv_events_config"
        ) from None
