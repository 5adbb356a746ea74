from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
import zmq

from octavo.actors.errors import SendFull, SocketClosed
from octavo.actors.transport import Socket, ZmqSocket, memory_pair

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.actors.transport import Context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30), pytest.mark.usefixtures("open_files")]


@pytest.fixture(params=["memory", "zmq"])
def pair(request: pytest.FixtureRequest, folder: Path, context: Context) -> tuple[Socket, Socket]:
    """Two connected sockets that both send and receive, with room for few messages."""
    if request.param == "memory":
        return memory_pair(capacity=4)
    endpoint = f"ipc://{folder}/s"
    one = ZmqSocket.bind(context, zmq.PAIR, endpoint, hwm=4)
    return one, ZmqSocket.connect(context, zmq.PAIR, endpoint, hwm=4)


async def test_frames_arrive_as_they_were_sent(pair: tuple[Socket, Socket]) -> None:
    one, other = pair
    other.send([b"head", b"", b"\x00" * 100_000])
    assert await one.receive() == [b"head", b"", b"\x00" * 100_000]
    one.send([b"back"])
    assert await other.drain() == [[b"back"]]
    one.close()
    other.close()


async def test_a_send_never_waits_and_writable_does(pair: tuple[Socket, Socket]) -> None:
    one, other = pair
    sent = 0
    await one.writable()
    with pytest.raises(SendFull), anyio.fail_after(5):
        while True:
            one.send([b"%d" % sent])
            sent += 1
            await anyio.lowlevel.checkpoint()
    got: list[list[bytes]] = []
    waited = anyio.Event()

    async def send_one_more() -> None:
        while True:
            await one.writable()
            try:
                one.send([b"more"])
            except SendFull:
                continue
            return waited.set()

    async with anyio.create_task_group() as group:
        group.start_soon(send_one_more)
        while not waited.is_set() or len(got) <= sent:
            got += await other.drain()
    assert got == [[b"%d" % i] for i in range(sent)] + [[b"more"]]
    one.close()
    other.close()


async def test_both_ends_may_send_while_they_receive(pair: tuple[Socket, Socket]) -> None:
    """A send uses up the signal of a message that came in: the receiver must be woken all the same."""
    count = 2000

    async def send(socket: Socket) -> None:
        for i in range(count):
            while True:
                try:
                    socket.send([b"%d" % i])
                    break
                except SendFull:
                    await socket.writable()
            if i % 7 == 0:
                await anyio.lowlevel.checkpoint()

    async def receive(socket: Socket) -> None:
        got: list[list[bytes]] = []
        while len(got) < count:
            got += await socket.drain()
        assert got == [[b"%d" % i] for i in range(count)]

    async with anyio.create_task_group() as group:
        for socket in pair:
            group.start_soon(send, socket)
            group.start_soon(receive, socket)
    for socket in pair:
        socket.close()


async def test_a_send_that_uses_up_the_signal_wakes_the_receiver(folder: Path, context: Context) -> None:
    one = ZmqSocket.bind(context, zmq.PAIR, f"ipc://{folder}/s")
    other = ZmqSocket.connect(context, zmq.PAIR, f"ipc://{folder}/s")
    got: list[list[bytes]] = []

    async def receive() -> None:
        got.append(await one.receive())

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await one.writable()
        await anyio.wait_all_tasks_blocked()
        other.send([b"x"])
        time.sleep(0.05)  # noqa: ASYNC251  # the message comes in while the loop does not look
        one.send([b"y"])  # libzmq looks for commands here, and so takes the signal before the loop sees it
        with anyio.fail_after(5):
            while not got:
                await anyio.lowlevel.checkpoint()
    assert got == [[b"x"]]
    one.close()
    other.close()


async def test_a_cancelled_receive_loses_nothing(pair: tuple[Socket, Socket]) -> None:
    one, other = pair
    for _ in range(50):
        with anyio.move_on_after(0.001):
            await other.receive()
    one.send([b"x"])
    async with anyio.create_task_group() as group:
        group.start_soon(other.receive)
        group.cancel_scope.cancel()
    assert await other.receive() == [b"x"]
    one.close()
    other.close()


async def test_close_wakes_a_receiver_and_ends_all_calls(pair: tuple[Socket, Socket]) -> None:
    one, other = pair

    async def receive() -> None:
        with pytest.raises(SocketClosed):
            await one.receive()

    async with anyio.create_task_group() as group:
        group.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        one.close()
    one.close()
    for call in (one.receive, one.writable, one.drain):
        with pytest.raises(SocketClosed):
            await call()
    with pytest.raises(SocketClosed):
        one.send([b"x"])
    other.close()


async def test_a_bound_push_that_nobody_connected_to_is_full(folder: Path, context: Context) -> None:
    push = ZmqSocket.bind(context, zmq.PUSH, f"ipc://{folder}/s")
    with pytest.raises(SendFull, match="nobody is connected"):
        push.send([b"x"])
    pull = ZmqSocket.connect(context, zmq.PULL, f"ipc://{folder}/s")
    await push.writable()
    push.send([b"x"])
    assert await pull.receive() == [b"x"]
    push.close()
    pull.close()


async def test_a_bad_endpoint_leaves_no_socket_open(folder: Path, context: Context) -> None:
    with pytest.raises(zmq.ZMQError):
        ZmqSocket.bind(context, zmq.PULL, f"ipc://{folder}/absent/s")


async def test_what_was_received_can_be_read_after_the_peer_of_memory_closed() -> None:
    one, other = memory_pair()
    one.send([b"x"])
    one.close()
    assert await other.receive() == [b"x"]
    with pytest.raises(SocketClosed):
        await other.receive()
