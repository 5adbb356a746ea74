"""The core's end of the link, against a scripted frontend in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec
import pytest
import zmq

from octavo.actors.transport import MemorySocket, memory_pair
from octavo.engine_core.frontend import FrontendGone
from octavo.engine_core.frontend_link import FrontendLink
from octavo.engine_core.session import Kind, Role, Session, Verdict
from octavo.errors import ProtocolError
from octavo.wire import frontend as wire
from octavo.wire.codec import CORE, FRONTEND, HEADER, pack_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

INFO = wire.EngineInfo("m", 128, 1000, 64, 16, 8, 1, "float32")
SAMPLING = wire.SamplingParams(1, 16)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def request(id_: int, attempt: int = 1, prompt: bytes = b"") -> wire.AddRequest:
    return wire.AddRequest(id_, attempt, f"r{id_}", prompt, b"", SAMPLING, 0)


def delta(id_: int, start: int, *tokens: int, attempt: int = 1, finish: wire.Finish | None = None) -> wire.Delta:
    return wire.Delta(id_, attempt, start, pack_tokens(tokens), finish)


class ScriptedFrontend:
    """A frontend that answers Hello, keeps the session, and leaves the rest to the test."""

    def __init__(self, socket: MemorySocket, incarnation: int = 11, window: int = 1 << 20) -> None:
        self.socket = socket
        self.session = Session(Role.FRONTEND, incarnation, window)
        self.hellos: list[wire.Hello] = []
        self.now = 0.0

    def restart(self, incarnation: int) -> None:
        self.session = Session(Role.FRONTEND, incarnation, 1 << 20)

    def send(self, message: wire.FrontendMessage) -> None:
        body = FRONTEND.encode(message)
        self.socket.send([HEADER.encode(self.session.number(len(body), self.now)), body])

    def skip(self) -> None:
        """Lose a message."""
        self.session.number(0, self.now)

    async def next(self, *, consume: bool = True) -> wire.CoreMessage:
        """Return the next numbered message."""
        while True:
            frames = await self.socket.receive()
            header, message = HEADER.decode(frames[0]), CORE.decode(frames[1])
            kind, sent = Kind.NUMBERED, 0
            if isinstance(message, wire.Hello):
                kind = Kind.HELLO
                self.hellos.append(message)
            elif isinstance(message, wire.Ack):
                kind, sent = Kind.ACK, message.sent
            size = len(frames[1])
            verdict = self.session.receive(header, kind, size, self.now, sent=sent)
            if verdict is Verdict.ASKED:
                self._post(self.session.open(header, self.now), wire.Welcome(1, "0.1.0"))
            elif verdict is Verdict.STRANGER:
                nudge = self.session.nudge(header, self.now)
                if nudge is not None:
                    self._post(nudge, wire.Ack(0))
            elif verdict is Verdict.DELIVER:
                if consume:
                    self.session.consumed(self.session.openings, size)
                return message

    def acknowledge(self) -> None:
        header, ack = self.session.ack(self.now)
        self._post(header, ack)

    def _post(self, header: wire.Header, message: wire.FrontendMessage) -> None:
        self.socket.send([HEADER.encode(header), FRONTEND.encode(message)])


@asynccontextmanager
async def linked(
    window: int = 1 << 20, frontend_window: int = 1 << 20
) -> AsyncIterator[tuple[FrontendLink, ScriptedFrontend]]:
    """A link that runs, with an open session and a ready engine."""
    ours, theirs = memory_pair()
    link = FrontendLink(ours, window=window)
    frontend = ScriptedFrontend(theirs, window=frontend_window)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        link.ready(INFO)
        assert await frontend.next() == wire.EngineReady(INFO)
        yield link, frontend
        group.cancel_scope.cancel()


async def test_says_who_it_is_and_starts_when_welcome() -> None:
    ours, theirs = memory_pair()
    link = FrontendLink(ours, rank=3)
    frontend = ScriptedFrontend(theirs)
    async with anyio.create_task_group() as group:
        group.start_soon(frontend.next)
        await group.start(link.run)
        assert link.connected
        group.cancel_scope.cancel()
    assert [(hello.role, hello.rank, hello.protocol) for hello in frontend.hellos] == [("engine", 3, 1)]


async def test_events_come_in_order() -> None:
    async with linked() as (link, frontend):
        assert link.receive_nowait() is None
        sent = [request(1), wire.AbortRequests((1,), "client"), wire.Control(5, "shutdown"), request(2)]
        for message in sent:
            frontend.send(message)
        assert [await link.receive() for _ in sent] == sent
        assert link.receive_nowait() is None


async def test_says_all_that_an_engine_says() -> None:
    async with linked() as (link, frontend):
        link.deliver(1, [delta(1, 0, 5)])
        link.deliver(2, [])
        link.reject(request(2), "too_long", "9 > 8", "prompt")
        link.control_done(5)
        link.fault("worker_died", "signal 9", restarting=True)
        link.stats(wire.Stats(*range(11)))
        assert await frontend.next() == wire.Deltas(1, (delta(1, 0, 5),))
        assert await frontend.next() == wire.RequestRejected(2, 1, "too_long", "9 > 8", "prompt")
        assert await frontend.next() == wire.ControlDone(5)
        assert await frontend.next() == wire.EngineFault("worker_died", "signal 9", True)
        assert await frontend.next() == wire.Stats(*range(11))


async def test_out_of_credit_it_merges_by_request_and_never_waits() -> None:
    async with linked(frontend_window=60) as (link, frontend):
        stop = wire.Finish("stop", 9)
        for step in range(1000):
            link.deliver(step, [delta(1, step, step), delta(2, step, -step)])
        link.deliver(1000, [delta(1, 1000, 9, finish=stop)])
        got: dict[int, list[bytes]] = {1: [], 2: []}
        finish = None
        while finish is None:
            frontend.acknowledge()
            message = await frontend.next()
            assert isinstance(message, wire.Deltas)
            for item in message.items:
                assert item.start == sum(map(len, got[item.id])) // 4
                got[item.id].append(item.tokens)
                finish = item.finish or finish
        assert finish == stop
        assert b"".join(got[1]) == pack_tokens([*range(1000), 9])
        assert b"".join(got[2]) == pack_tokens([-n for n in range(1000)])
        assert len(got[1]) < 20, "merged, not queued"


async def test_what_the_engine_has_not_taken_is_bounded_by_credit() -> None:
    async with linked(window=1000) as (link, frontend):
        prompt = bytes(400)
        sent = 0
        while frontend.session.may_send(450):
            frontend.send(request(sent, prompt=prompt))
            sent += 1
        assert sent == 2
        first = await link.receive()
        assert isinstance(first, wire.AddRequest)
        with pytest.raises(TimeoutError), anyio.fail_after(0.2):
            await frontend.next()
        await link.receive()
        with pytest.raises(TimeoutError), anyio.fail_after(0.2):
            await frontend.next()
        assert frontend.session.may_send(450), "what the engine took gives credit"


async def test_a_refusal_is_an_error_that_says_why() -> None:
    ours, theirs = memory_pair()
    link = FrontendLink(ours, version="9.9.9")
    session = Session(Role.FRONTEND, 11, 100)

    async def refuse() -> None:
        frames = await theirs.receive()
        hello = CORE.decode(frames[1])
        assert isinstance(hello, wire.Hello)
        body = FRONTEND.encode(wire.Refuse(f"it is {hello.version}, the frontend is 0.1.0"))
        theirs.send([HEADER.encode(session.refusal(HEADER.decode(frames[0]))), body])

    async with anyio.create_task_group() as group:
        group.start_soon(refuse)
        with pytest.raises(ProtocolError, match=r"9\.9\.9.*0\.1\.0"):
            await link.run()


async def test_after_a_gap_it_asks_anew_and_forgets_what_comes_again() -> None:
    async with linked() as (link, frontend):
        frontend.send(request(1))
        frontend.send(wire.AbortRequests((7,), "client"))
        frontend.skip()
        frontend.send(request(3))
        assert await frontend.next() == wire.EngineReady(INFO)
        assert frontend.session.epoch == 2
        frontend.send(request(1, attempt=2))
        assert await link.receive() == wire.AbortRequests((7,), "client")
        assert await link.receive() == request(1, attempt=2)
        assert link.receive_nowait() is None


async def test_a_new_frontend_is_announced() -> None:
    async with linked() as (link, frontend):
        frontend.send(request(1))
        frontend.restart(12)
        link.deliver(1, [delta(1, 0, 1)])
        assert await frontend.next() == wire.EngineReady(INFO)
        frontend.send(request(1))
        assert await link.receive() == FrontendGone()
        assert await link.receive() == request(1)


async def test_drain_waits_for_the_acknowledgement() -> None:
    async with linked() as (link, frontend):
        link.deliver(1, [delta(1, 0, 1)])
        answers: list[bool] = []
        async with anyio.create_task_group() as group:

            async def drain() -> None:
                answers.append(await link.drain("shutdown"))

            group.start_soon(drain)
            assert await frontend.next() == wire.Deltas(1, (delta(1, 0, 1),))
            assert await frontend.next() == wire.Goodbye("shutdown")
            assert not answers
            frontend.acknowledge()
        assert answers == [True]


async def test_drain_does_not_wait_for_a_frontend_that_is_not_there() -> None:
    async with linked() as (link, _frontend):
        for _ in range(1001):  # one more than the socket holds: it does not even leave
            link.stats(wire.Stats(*range(11)))
        began = anyio.current_time()
        assert not await link.drain("shutdown")
        assert anyio.current_time() - began < 1


async def test_drain_gives_up_on_a_silent_frontend() -> None:
    ours, _theirs = memory_pair()
    link = FrontendLink(ours)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        link.ready(INFO)
        with anyio.fail_after(8):
            assert not await link.drain("shutdown")
        group.cancel_scope.cancel()


async def test_bytes_that_are_no_message_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async with linked() as (link, frontend):
        frontend.socket.send([b"\xc1", b""])
        frontend.socket.send([HEADER.encode(frontend.session.number(3, 0.0))])
        body = msgspec.msgpack.encode(["Novelty", 1])
        frontend.socket.send([HEADER.encode(frontend.session.number(len(body), 0.0)), body])
        frontend.send(request(1))
        assert await link.receive() == request(1)
        assert frontend.session.epoch == 1
    assert "Novelty" in caplog.text


def test_only_ipc() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        with pytest.raises(ProtocolError, match=r"tcp://127.0.0.1:1"):
            FrontendLink.connect(context, "tcp://127.0.0.1:1")
    finally:
        context.term()
