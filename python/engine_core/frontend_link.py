"""The engine core's end of the link to the frontend: asks for a session, keeps it, and never makes the engine wait."""

from __future__ import annotations

import logging
import os
import random
import time
from collections import deque
from typing import TYPE_CHECKING

import anyio
import zmq

from octavo.actors.errors import SendFull, SocketClosed
from octavo.actors.transport import Socket, ZmqSocket
from octavo.engine_core.frontend import FrontendEvent, FrontendGone
from octavo.engine_core.outbox import Outbox
from octavo.engine_core.session import HELLO_INTERVAL, Kind, Role, Session, Verdict
from octavo.errors import ProtocolError
from octavo.wire.codec import CORE, FRONTEND, HEADER
from octavo.wire.frontend import (
    AbortRequests,
    Ack,
    AddRequest,
    Control,
    ControlDone,
    Deltas,
    EngineFault,
    EngineReady,
    Goodbye,
    Hello,
    Refuse,
    RequestRejected,
    Welcome,
)
from octavo.wire.version import PROTOCOL, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from anyio.abc import TaskStatus

    from octavo.wire.frontend import Delta, EngineInfo, FrontendMessage, Header, Stats

__all__ = ["FrontendLink"]

log = logging.getLogger(__name__)

#: Bytes of messages that wait for the engine at most.
WINDOW = 32 << 20
#: Messages that wait for the engine at most, however small; more wait in the socket.
INBOX_LIMIT = 4096
#: Of the timers: Hello, Ack.
TICK = 0.1
DRAIN_TIMEOUT = 5.0
#: A frontend that has been silent for so long does not acknowledge any more.
DRAIN_SILENCE = 2.0


def draw_incarnation() -> int:
    """Draw what tells this process from all others; never 0."""
    return random.SystemRandom().randrange(1, 1 << 64)


class FrontendLink:
    """Implements `Frontend` over a socket. `run` must be running for anything to travel.

    Invariants: the inbox holds no event of a session before the last opening, except aborts and controls, which hurt
    nobody; the outbox is empty unless there is no session or no credit.
    """

    def __init__(
        self,
        socket: Socket,
        *,
        rank: int = 0,
        key: bytes = b"",
        incarnation: int | None = None,
        window: int = WINDOW,
        protocol: int = PROTOCOL,
        version: str = VERSION,
    ) -> None:
        """Talk over `socket`, which the link owns and closes. At most `window` bytes wait for the engine.

        key: shows the frontend that this is its engine; empty: it asks for none.
        """
        self._socket = socket
        incarnation = incarnation if incarnation is not None else draw_incarnation()
        self._session = Session(Role.CORE, incarnation, window)
        self._hello = CORE.encode(Hello(protocol, version, "engine", rank, os.getpid(), key or None))
        self._outbox = Outbox()
        self._inbox: deque[tuple[int, int, FrontendEvent]] = deque()  # (opening, bytes, event)
        self._arrived = anyio.Event()
        self._taken = anyio.Event()
        self._acked = anyio.Event()
        self._started = False
        self._unreachable = False  # the last message did not even leave
        # A body of so many bytes found no credit; what waits only grows, so nothing is encoded before that much fits.
        self._stuck = 0

    @classmethod
    def connect(
        cls, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, *, rank: int = 0, key: bytes = b""
    ) -> Self:
        """Open a link to the frontend that listens on `ipc:///path`, whether it is there already or not.

        Raises ProtocolError for another kind of endpoint.
        """
        if not endpoint.startswith("ipc:///"):
            raise ProtocolError(f"frontend endpoint {endpoint!r}: expected ipc:///path; tcp is not supported yet")
        incarnation = draw_incarnation()
        socket = context.socket(zmq.DEALER)
        # A name of its own: the frontend may still hold the connection of the process before this one.
        socket.routing_id = f"engine-{rank}-{incarnation:016x}".encode()
        # Queues hold what the credit allows; nothing is queued for a frontend that is not there.
        socket.sndhwm = socket.rcvhwm = 0
        socket.immediate = True
        socket.reconnect_ivl, socket.reconnect_ivl_max = 20, 500
        socket.linger = 0
        socket.connect(endpoint)
        return cls(ZmqSocket(socket), rank=rank, key=key, incarnation=incarnation)

    @property
    def connected(self) -> bool:
        """Whether a session is open."""
        return self._session.is_open

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep the session until cancelled. Reports started when the first session is open.

        Raises ProtocolError if the frontend refuses.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_time)
                await self._read(task_status)
        except BaseExceptionGroup as group_error:
            # One error of ours at most leaves the group; callers expect it bare.
            raise _only(group_error) from None
        finally:
            self._socket.close()

    async def receive(self) -> FrontendEvent:
        """Wait for the next event and take it. A cancelled call takes none. One task receives."""
        while (event := self.receive_nowait()) is None:
            await self._arrived.wait()
        return event

    def receive_nowait(self) -> FrontendEvent | None:
        """Take the next event if there is one."""
        if not self._inbox:
            self._arrived = anyio.Event()
            return None
        opening, size, event = self._inbox.popleft()
        self._session.consumed(opening, size)
        self._taken.set()
        self._acknowledge()
        return event

    def ready(self, info: EngineInfo) -> None:
        """Say that requests may come. Said again by itself whenever a session opens, until `fault`."""
        self._outbox.status(EngineReady(info))
        self._flush()

    def fault(self, kind: str, message: str, *, restarting: bool) -> None:
        """Say that the workers are gone; `kind` is as in EngineFault. Said again by itself, until `ready`."""
        self._outbox.status(EngineFault(kind, message, restarting))
        self._flush()

    def deliver(self, step: int, deltas: Sequence[Delta]) -> None:
        """Say what a step brought: at most one delta a request, each starting where the one before ended."""
        if not deltas:
            return
        if not len(self._outbox):
            body = CORE.encode(Deltas(step, tuple(deltas)))
            if self._session.may_send(len(body)):
                self._post(self._session.number(len(body), time.monotonic()), body)
                return
        self._outbox.deltas(step, deltas)
        self._flush()

    def reject(self, request: AddRequest, code: str, message: str, param: str | None = None) -> None:
        """Say that a request cannot run, for good; `code` is as in RequestRejected."""
        self._outbox.answer(RequestRejected(request.id, request.attempt, code, message, param))
        self._flush()

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        """Answer a Control; `code` and `param` are as in ControlDone."""
        self._outbox.answer(ControlDone(id_, error, result or {}, code, param))
        self._flush()

    def stats(self, stats: Stats) -> None:
        """Say how things stand. Of those that wait to be sent only the latest is kept."""
        self._outbox.stats(stats)
        self._flush()

    async def drain(self, reason: str) -> bool:
        """Say goodbye and wait until the frontend has acknowledged all. Returns whether it has.

        Waits 5 seconds at most, 2 for a frontend that says nothing, and not at all for one that is not there.
        """
        self._outbox.goodbye(Goodbye(reason))
        self._flush()
        deadline = time.monotonic() + DRAIN_TIMEOUT
        while len(self._outbox) or not self._session.drained:
            now = time.monotonic()
            if self._unreachable or now >= deadline or self._session.silence(now) > DRAIN_SILENCE:
                return False
            self._acked = anyio.Event()
            with anyio.move_on_after(TICK):
                await self._acked.wait()
        return True

    async def _read(self, task_status: TaskStatus[None]) -> None:
        while True:
            while len(self._inbox) >= INBOX_LIMIT:
                self._taken = anyio.Event()
                await self._taken.wait()
            for frames in await self._socket.drain():
                self._take(frames)
            if self._session.is_open and not self._started:
                self._started = True
                task_status.started()
            self._acknowledge()
            self._flush()
            self._acked.set()

    async def _keep_time(self) -> None:
        while True:
            if self._session.hello_due(time.monotonic()):
                await self._ask()
            self._acknowledge()
            self._flush()
            await anyio.sleep(TICK)

    async def _ask(self) -> None:
        """Say Hello as soon as the frontend is there."""
        with anyio.move_on_after(HELLO_INTERVAL):
            await self._socket.writable()
        now = time.monotonic()
        if self._session.hello_due(now):
            self._post(self._session.hello(now), self._hello)

    def _acknowledge(self) -> None:
        now = time.monotonic()
        if self._session.ack_due(now):
            header, ack = self._session.ack(now)
            self._post(header, CORE.encode(ack))

    def _flush(self) -> None:
        """Send what waits, as far as the credit goes."""
        if not self._session.may_send(self._stuck):
            return
        self._stuck = 0
        for body in self._outbox.bodies():
            if not self._session.may_send(len(body)):
                self._stuck = len(body)
                break
            self._post(self._session.number(len(body), time.monotonic()), body)

    def _post(self, header: Header, body: bytes) -> None:
        """Hand a message to the socket. If it is lost there, the gap is noticed and the session opened anew."""
        try:
            self._socket.send([HEADER.encode(header), body])
            self._unreachable = False
        except (SendFull, SocketClosed) as error:
            self._unreachable = True
            log.debug("message %d of the session is lost: %s", header.seq, error)

    def _take(self, frames: Sequence[bytes]) -> None:
        try:
            header = HEADER.decode(frames[0])
        except ProtocolError as error:
            log.warning("a message of the frontend has no header and is dropped: %s", error)
            return
        message = _decode(frames)
        if message is None and header.seq == 0:
            return
        size = sum(map(len, frames[1:]))
        sent = message.sent if isinstance(message, Ack) else 0
        verdict = self._session.receive(header, _kind(message), size, time.monotonic(), sent=sent)
        if verdict is Verdict.DELIVER and isinstance(message, AddRequest | AbortRequests | Control):
            self._inbox.append((self._session.openings, size, message))
            self._arrived.set()
        elif verdict in (Verdict.OPENED, Verdict.OPENED_BY_NEW_PEER):
            self._opened(new_peer=verdict is Verdict.OPENED_BY_NEW_PEER)
        elif verdict is Verdict.DELIVER:
            self._session.consumed(self._session.openings, size)
        elif isinstance(message, Refuse) and verdict is Verdict.REFUSED:
            raise ProtocolError(f"the frontend refuses this engine: {message.reason}")
        elif verdict is Verdict.LOST:
            log.info("messages of the frontend are missing; asking it to open the session anew")

    def _opened(self, *, new_peer: bool) -> None:
        """Forget what the frontend will send again."""
        kept = [] if new_peer else [item for item in self._inbox if not isinstance(item[2], AddRequest)]
        self._inbox.clear()
        if new_peer:
            log.info("the frontend is a new process; requests of the old one are dropped")
            self._inbox.append((0, 0, FrontendGone()))
        self._inbox.extend(kept)
        self._arrived.set()
        self._outbox.begin()
        self._stuck = 0


def _decode(frames: Sequence[bytes]) -> FrontendMessage | None:
    """Return the message, or None if it is not understood. It still counts, or it would be missed for ever."""
    try:
        return FRONTEND.decode(frames[1] if len(frames) > 1 else b"")
    except ProtocolError as error:
        log.warning("a message of the frontend is not understood and dropped: %s", error)
        return None


def _kind(message: FrontendMessage | None) -> Kind:
    match message:
        case Welcome():
            return Kind.WELCOME
        case Refuse():
            return Kind.REFUSE
        case Ack():
            return Kind.ACK
        case _:
            return Kind.NUMBERED


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that a group, or a group in it, holds; else the group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
