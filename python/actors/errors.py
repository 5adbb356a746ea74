"""Errors of the actor runtime.

OctavoError
├── ActorError
│   ├── ActorDead           the actor has ended, or ended before it answered
│   ├── AskTimeout          no answer in time
│   ├── MailboxFull         back-pressure: try again later, or refuse the work
│   ├── MailboxClosed       to the owner of a mailbox: closed and empty
│   ├── SendFull            a socket's queue is full, or nobody is connected yet
│   ├── SocketClosed        the socket was closed
│   ├── HelloTimeout        a process started and did not say hello in time
│   ├── ProcessDied         a process ended unasked with an exit code other than 0, or by a signal
│   └── ProcessHung         a process made no progress for too long and was killed
└── SupervisionError
    └── ChildrenFailed      a supervisor gave up; carries the causes
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from octavo.errors import OctavoError, SupervisionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ActorDead",
    "ActorError",
    "AskTimeout",
    "ChildrenFailed",
    "HelloTimeout",
    "MailboxClosed",
    "MailboxFull",
    "ProcessDied",
    "ProcessHung",
    "SendFull",
    "SocketClosed",
]


class ActorError(OctavoError):
    """Base of the errors of actors, their mailboxes, sockets and processes."""


class ActorDead(ActorError):
    """The actor has ended: the message was not accepted, or will not be answered."""


class AskTimeout(ActorError):
    """No answer came in time. The message may still be handled."""


class MailboxFull(ActorError):
    """The mailbox holds as many messages as it may."""


class MailboxClosed(ActorError):
    """The mailbox is closed and empty."""


class SendFull(ActorError):
    """The socket would have to wait: its queue is full, or nobody is connected yet."""


class SocketClosed(ActorError):
    """The socket was closed."""


class HelloTimeout(ActorError):
    """A process said nothing within its time to start. `stderr` holds its last lines."""

    def __init__(self, name: str, timeout_s: float, stderr: Sequence[str]) -> None:
        super().__init__(f"{name} did not say hello within {timeout_s:g} s{_tail(stderr)}")
        self.name = name
        self.stderr = tuple(stderr)


class ProcessDied(ActorError):
    """A process ended unasked. `returncode` is negative for a signal; `stderr` holds its last lines."""

    def __init__(self, name: str, returncode: int, stderr: Sequence[str]) -> None:
        super().__init__(f"{name} died: {_ending(returncode)}{_tail(stderr)}")
        self.name = name
        self.returncode = returncode
        self.stderr = tuple(stderr)


class ProcessHung(ActorError):
    """A process made no progress for `timeout_s` seconds. `stderr` ends with its stacks, if it could dump them."""

    def __init__(self, name: str, state: object, timeout_s: float, stderr: Sequence[str]) -> None:
        where = "" if state is None else f" (last seen at {state})"
        super().__init__(f"{name} hung: no progress for {timeout_s:g} s{where}; killed{_tail(stderr)}")
        self.name = name
        self.state = state
        self.stderr = tuple(stderr)


class ChildrenFailed(SupervisionError):
    """A supervisor gave up. `causes` are the errors of the exits that it counted, the last one last.

    `exhausted`: because there were more restarts than its limit allows.
    """

    def __init__(self, message: str, causes: Sequence[BaseException], *, exhausted: bool = False) -> None:
        super().__init__(message)
        self.causes = tuple(causes)
        self.exhausted = exhausted


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _tail(stderr: Sequence[str]) -> str:
    return "".join(f"\n  | {line}" for line in stderr)
