"""KV events over real sockets: a subscriber that follows, and one that comes late."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
import zmq

from octavo.config import KvEventsConfig
from octavo.engine_core.cache.events import AllBlocksCleared, BlockRemoved, BlockStored
from octavo.engine_core.kv_publisher import END_OF_REPLAY, KvEventBatch, KvPublisher
from octavo.errors import ConfigError

pytestmark = pytest.mark.anyio
EVENTS = (BlockStored((b"h" * 16,), None, (1, 2), 2, medium="CPU"), BlockRemoved((b"h" * 16,), "CPU"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def config(folder: Path) -> KvEventsConfig:
    return KvEventsConfig(
        enable_kv_cache_events=True,
        endpoint=f"ipc://{folder}/events",
        replay_endpoint=f"ipc://{folder}/replay",
        buffer_steps=3,
        topic="kv",
    )


async def receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    with anyio.fail_after(10):
        while not socket.poll(0):  # noqa: ASYNC110  # a plain socket has no event
            await anyio.sleep(0.01)
    return socket.recv_multipart()


async def test_batches_are_numbered_and_sent_again_on_request(tmp_path: Path) -> None:
    with zmq.Context[zmq.Socket[bytes]]() as context:
        publisher = KvPublisher.bind(context, config(tmp_path))
        subscriber, late = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        subscriber.connect(f"ipc://{tmp_path}/events")
        subscriber.subscribe(b"kv")
        late.connect(f"ipc://{tmp_path}/replay")
        async with anyio.create_task_group() as group:
            group.start_soon(publisher.run)
            seen: list[bytes] = []
            while not seen:  # a SUB socket joins in its own time
                publisher.publish(EVENTS)
                await anyio.sleep(0.01)
                if subscriber.poll(0):
                    seen = subscriber.recv_multipart()
            topic, number, body = seen
            batch = msgspec.msgpack.decode(body, type=KvEventBatch)
            assert (topic, batch.events, batch.data_parallel_rank) == (b"kv", EVENTS, 0)
            raw = msgspec.msgpack.decode(body)
            assert raw[1][0][:5] == ["BlockStored", [b"h" * 16], None, [1, 2], 2], "as vLLM's subscribers read it"

            publisher.publish([])
            for _ in range(4):
                publisher.publish([AllBlocksCleared()])
            first = int.from_bytes(number, "big")
            late.send_multipart([b"", (0).to_bytes(8, "big")])
            numbers = []
            while (frames := await receive(late))[1] != END_OF_REPLAY:
                numbers.append(int.from_bytes(frames[1], "big"))
                assert msgspec.msgpack.decode(frames[2], type=KvEventBatch).events == (AllBlocksCleared(),)
            assert len(numbers) == 3, "no more are kept"
            assert numbers == list(range(numbers[0], numbers[0] + 3))
            assert numbers[-1] >= first + 4
            late.send_multipart([b"nonsense"])
            late.send_multipart([b"", (1 << 40).to_bytes(8, "big")])
            assert await receive(late) == [b"", END_OF_REPLAY, b""]
            group.cancel_scope.cancel()
        publisher.close()
        subscriber.close(0)
        late.close(0)


async def test_an_address_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with zmq.Context[zmq.Socket[bytes]]() as context:
        bad = msgspec.structs.replace(config(tmp_path), replay_endpoint="tcp://nowhere.invalid:1")
        with pytest.raises(ConfigError, match=r"replay_endpoint 'tcp://nowhere\.invalid:1'"):
            KvPublisher.bind(context, bad)
