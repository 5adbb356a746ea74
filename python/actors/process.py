"""An actor whose body is another process."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from anyio.abc import TaskStatus

    from octavo.actors.link import Link
    from octavo.actors.transport import Frames

__all__ = ["ProcessActor", "ProcessSpec"]

R = TypeVar("R")


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
        raise NotImplementedError

    #: Random u64; the process finds it in its environment (`child.Parent.incarnation`) and repeats it in its hello.
    incarnation: int

    @property
    def pid(self) -> int | None:
        """The process id, once spawned."""
        raise NotImplementedError

    def send(self, frames: Frames) -> None:
        """Queue a message to the process. Raises SendFull instead of waiting, ActorDead before hello and after death."""
        raise NotImplementedError

    async def writable(self) -> None:
        """Wait until `send` has room. Raises ActorDead."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the process to end, by the stop message or SIGTERM; `run` returns when it has. See `Child.stop`."""
        raise NotImplementedError

    async def run(self, *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the process to its end. Reports started, with the pid, when the hello is accepted.

        Returns when the process ended after `stop`, or with exit code 0. Cancellation kills it.
        Raises HelloTimeout, ProcessDied (after all messages that the process had sent were handed on), ProcessHung, what
        `check_hello` or `on_message` raised, OSError when the program cannot be started.
        """
        raise NotImplementedError
