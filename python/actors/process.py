"""An actor whose body is another process."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from octavo.actors.console import Console
from octavo.actors.errors import ActorDead, HelloTimeout, ProcessDied, ProcessHung, SendFull, SocketClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

    from anyio.abc import Process, TaskStatus

    from octavo.actors.link import Link
    from octavo.actors.transport import Frames

__all__ = ["ProcessActor", "ProcessSpec"]

log = logging.getLogger(__name__)

R = TypeVar("R")

#: Seconds without a message after which a dead process has no more on their way.
QUIET_S = 0.1
#: Seconds between the end of a process and the end of its output.
LAST_WORDS_S = 1.0
#: Seconds that a killed process takes to end, at most.
REAP_S = 10.0
#: Seconds for a hung process to write its stacks.
DUMP_S = 1.0
#: Seconds past the deadline after which a process that made no progress is declared hung.
RECHECK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run and how long to wait for it."""

    name: str  # in logs and errors, e.g. "worker-0"
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)  # beyond ours
    pass_fds: Sequence[int] = ()  # inherited under the same numbers
    hello_timeout_s: float = 60.0  # from the spawn to the first message
    hang_timeout_s: float | None = None  # without progress; None: no watch
    dump_signal: signal.Signals | None = None  # makes a hung process write its stacks to stderr (child.register_dump)


class ProcessActor(Generic[R]):
    """Run a process: spawn, hello, messages, hang watch, death watch, stop. Implements `Child`; runs once.

    The process leads a session of its own. Its stdin is a pipe that we hold: end of file tells it that we are gone
    (`child.watch_parent`). Its stderr, and what its stdout holds besides messages, goes line by line to our stderr; the
    last 40 lines are part of the error when it dies. When `run` ends, in whatever way, the process and all others in
    its session's process group are dead and reaped.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        link: Link[R],
        *,
        check_hello: Callable[[R], None],
        on_message: Callable[[R], None],
        progress: Callable[[R], Hashable | None] = lambda message: None,
        stop_message: Frames | None = None,
    ) -> None:
        """Keep the arguments.

        check_hello: raises ProtocolError when the first message is not what it should be (version, incarnation).
        on_message: called with every message, hello too, in order, in this actor's task; an exception ends the actor
            with that error.
        progress: what a message says about progress: a heartbeat's (phase, step, layer) while the process has work,
            None for anything else. The process hangs when no message came for `hang_timeout_s` but ones whose progress
            equals the last; a message with None counts as a sign of life.
        stop_message: asks the process to end; None: SIGTERM does.
        """
        self.name = spec.name
        self.incarnation = secrets.randbits(64)
        self._spec = spec
        self._link = link
        self._check_hello = check_hello
        self._on_message = on_message
        self._progress = progress
        self._stop_message = stop_message
        self._console = Console(link.line)
        self._unread: deque[R] = deque()
        self._greeted = anyio.Event()
        self._stopping = anyio.Event()
        self._open = False  # for `send`: between hello and the end
        self._state: Hashable | None = None  # of the last progress
        self._progress_at = 0.0  # on the loop's clock
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id, once spawned."""
        return None if self._process is None else self._process.pid

    def send(self, frames: Frames) -> None:
        """Queue a message to the process; never waits. Raises SendFull; ActorDead before hello and after the end."""
        self._check_open()
        self._link.send(frames)

    async def writable(self) -> None:
        """Wait until `send` has room. Raises ActorDead."""
        self._check_open()
        try:
            await self._link.writable()
        except SocketClosed:
            raise ActorDead(f"{self.name} has ended") from None

    def stop(self) -> None:
        """Ask the process to end, by the stop message or SIGTERM; `run` returns when it has. See `Child.stop`."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the process to its end. Reports started, with the pid, when the hello is accepted.

        Returns when the process ended after `stop`, or with exit code 0. Cancellation kills it.
        Raises HelloTimeout; ProcessDied, after handing on all messages that the process had sent; ProcessHung; what
        `check_hello` or `on_message` raised; OSError when the program cannot be started.
        """
        with ExitStack() as stack:
            stack.callback(self._link.close)
            env = self._link.open(self.name, self.incarnation)
            reading, lifeline = os.pipe()
            stack.callback(os.close, lifeline)
            self._process = await self._spawn(reading, env)
            error = await self._live(self._process, task_status)
            if error is None:
                await self._hand_on_rest()
                error = self._judge(self._process)
        if error is not None:
            raise error

    async def _spawn(self, stdin: int, env: Mapping[str, str]) -> Process:
        """Start the process. Shielded: a start that is cancelled halfway would leave a process that nobody knows."""
        own = {"OCTAVO_NAME": self.name, "OCTAVO_INCARNATION": str(self.incarnation)}
        try:
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    list(self._spec.argv),
                    stdin=stdin,
                    env={**os.environ, **self._spec.env, **own, **env},
                    pass_fds=self._spec.pass_fds,
                    start_new_session=True,
                )
        finally:
            os.close(stdin)
        return process

    async def _live(self, process: Process, task_status: TaskStatus[int]) -> Exception | None:
        """Go on until the process ends or fails us; return the failure. The process is dead then."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._console.read, process)
            try:
                error = await _first(
                    process.wait,
                    partial(self._talk, process.pid, task_status),
                    partial(self._watch_progress, process),
                    partial(self._obey_stop, process),
                )
            finally:
                with anyio.CancelScope(shield=True):
                    await self._bury(process)
        return error

    async def _talk(self, pid: int, task_status: TaskStatus[int]) -> None:
        await self._greet()
        task_status.started(pid)
        while True:
            self._hand_on()
            await self._receive()

    async def _greet(self) -> None:
        """Wait for an acceptable first message, and until we can answer."""
        try:
            with anyio.fail_after(self._spec.hello_timeout_s):
                await self._receive()
                self._check_hello(self._unread[0])
                await self._link.writable()
        except TimeoutError:
            raise HelloTimeout(self.name, self._spec.hello_timeout_s, self._console.last) from None
        self._open = True
        self._progress_at = anyio.current_time()
        self._greeted.set()

    async def _receive(self) -> None:
        self._unread.extend(await self._link.receive())

    def _hand_on(self) -> None:
        while self._unread:
            message = self._unread.popleft()
            state = self._progress(message)
            if state is None or state != self._state:
                self._progress_at = anyio.current_time()
            self._state = state
            self._on_message(message)

    async def _hand_on_rest(self) -> None:
        """Hand on what the process had sent when it ended; ZeroMQ's thread may still be reading it."""
        with anyio.move_on_after(QUIET_S) as quiet:
            while True:
                await self._receive()
                quiet.deadline = anyio.current_time() + QUIET_S
        if self._unread and not self._greeted.is_set():
            self._check_hello(self._unread[0])
        self._hand_on()

    async def _watch_progress(self, process: Process) -> None:
        timeout_s = self._spec.hang_timeout_s
        if timeout_s is None:
            return await anyio.sleep_forever()
        await self._greeted.wait()
        await self._stalled(timeout_s)
        await self._dump(process)
        raise ProcessHung(self.name, self._state, timeout_s, self._console.last)

    async def _stalled(self, timeout_s: float) -> None:
        """Return when there was no progress for `timeout_s`. Looks twice: if our own loop was stuck, messages wait."""
        while True:
            await anyio.sleep_until(self._progress_at + timeout_s)
            seen = self._progress_at
            await anyio.sleep(RECHECK_S)
            if seen == self._progress_at and anyio.current_time() >= seen + timeout_s:
                return

    async def _dump(self, process: Process) -> None:
        """Let the process write its stacks to stderr."""
        if self._spec.dump_signal is not None:
            _signal(process, self._spec.dump_signal)
            await anyio.sleep(DUMP_S)

    async def _obey_stop(self, process: Process) -> None:
        await self._stopping.wait()
        if not self._send_stop():
            _signal(process, signal.SIGTERM)
        await anyio.sleep_forever()

    def _send_stop(self) -> bool:
        if self._stop_message is None or not self._open:
            return False
        try:
            self._link.send(self._stop_message)
        except SendFull:
            return False
        return True

    async def _bury(self, process: Process) -> None:
        """Kill what is left of the process and its group, reap it, read its last words."""
        self._open = False
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.move_on_after(REAP_S):
            await process.wait()
        await self._console.close(LAST_WORDS_S)
        if process.returncode is None:  # the kernel holds it, in a driver perhaps
            log.error("%s: process %d was killed and does not end; leaving it behind", self.name, process.pid)
        else:
            await process.aclose()

    def _judge(self, process: Process) -> ProcessDied | None:
        code = process.returncode
        if not code or self._stopping.is_set():
            return None
        return ProcessDied(self.name, code, self._console.last)

    def _check_open(self) -> None:
        if not self._open:
            raise ActorDead(f"{self.name} has {'ended' if self._greeted.is_set() else 'not said hello yet'}")


def _signal(process: Process, number: signal.Signals) -> None:
    """Send a signal. Not by Popen, whose poll may reap the process before the loop's child watcher does."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def _first(*bodies: Callable[[], Awaitable[object]]) -> Exception | None:
    """Run all until one returns or raises, cancel the others, return the error if there was one."""
    errors: list[Exception] = []

    async def run(body: Callable[[], Awaitable[object]]) -> None:
        try:
            await body()
        except Exception as error:
            errors.append(error)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for body in bodies:
            group.start_soon(run, body)
    return errors[0] if errors else None
