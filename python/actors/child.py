"""The other side of a `ProcessActor`: what its process calls. Threads and blocking sockets, no event loop."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING

import zmq

from octavo import __version__
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from octavo.actors.transport import Frames

__all__ = ["Inbox", "Outbox", "Parent", "register_dump", "report", "watch_parent"]

PR_SET_PDEATHSIG = 1
#: Held while a line is written to stdout.
_reporting = threading.Lock()
#: What `Parent.find` reads, after "OCTAVO_".
ENVIRONMENT = ("NAME", "INCARNATION", "INBOX", "OUTBOX", "KEY")


def watch_parent() -> None:
    """Tie this process to its parent's life; call it first of all, in the main thread.

    The kernel kills this process when the thread that started it ends (PR_SET_PDEATHSIG, Linux), and a daemon thread
    leaves with os._exit at the end of file on stdin, the parent's lifeline. Stdin becomes /dev/null for everybody else.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    lifeline = os.dup(0)
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    if _ended(lifeline):  # before the prctl: no signal will come
        os._exit(1)
    threading.Thread(target=_exit_at_end, args=(lifeline,), name="lifeline", daemon=True).start()


def report(event: str, **fields: object) -> None:
    """Tell the parent's `StdoutLink` of an event; the version goes with it. For any thread.

    The line and its end are one write: `print` makes two, and another thread's line may come between them.
    """
    line = json.dumps({"event": event, "version": __version__, **fields})
    with _reporting:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def register_dump(dump_signal: signal.Signals = signal.SIGUSR1) -> None:
    """Write the stacks of all threads to stderr when `dump_signal` comes, even while the interpreter is stuck."""
    faulthandler.register(dump_signal, sys.stderr, all_threads=True)


class Parent:
    """The process actor that started this process. Owns the ZeroMQ context that all threads of the process share.

    name: of the actor, e.g. "worker-0". incarnation: u64, to be repeated in the hello.
    """

    def __init__(self, name: str, incarnation: int, inbox: str, outbox: str, key: bytes) -> None:
        """Keep the arguments; `inbox`, `outbox`: endpoints that the parent has bound; `key` begins each message."""
        self.name = name
        self.incarnation = incarnation
        self._inbox = inbox
        self._outbox = outbox
        self._key = key
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []  # a socket that is collected takes unsent messages with it

    @classmethod
    def find(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read what `ZmqLink` put into the environment. Raises ConfigError when this process was started otherwise."""
        try:
            name, incarnation, inbox, outbox, key = (environ[f"OCTAVO_{key}"] for key in ENVIRONMENT)
        except KeyError as error:
            raise ConfigError(f"{error.args[0]} is not set: only octavo itself can start this program") from None
        return cls(name, int(incarnation), inbox, outbox, bytes.fromhex(key))

    def inbox(self) -> Inbox:
        """Connect for messages from the parent. Once, before the hello: the parent waits for both. For one thread."""
        return Inbox(self._connect(zmq.PAIR, self._inbox))

    def outbox(self) -> Outbox:
        """Connect for messages to the parent. Once for each thread that sends."""
        return Outbox(self._connect(zmq.PUSH, self._outbox), self._key)

    def close(self, linger_s: float = 2.0) -> None:
        """Close all sockets and wait until what was sent is on its way, `linger_s` at most. No thread may use them."""
        self._context.destroy(linger=round(linger_s * 1000))

    def _connect(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        self._sockets.append(socket)
        socket.connect(endpoint)
        return socket


class Inbox:
    """Messages from the parent, for one thread."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def receive(self, timeout_s: float | None = None) -> list[bytes] | None:
        """Block for the next message; return None when `timeout_s` passed (None: never passes)."""
        if timeout_s is not None and not self._socket.poll(round(timeout_s * 1000)):
            return None
        return self._socket.recv_multipart()


class Outbox:
    """Messages to the parent, for one thread."""

    def __init__(self, socket: zmq.Socket[bytes], key: bytes) -> None:
        self._socket = socket
        self._key = key

    def send(self, frames: Frames) -> None:
        """Send a message; blocks while the parent does not take what is queued."""
        self._socket.send_multipart([self._key, *frames])


def _ended(lifeline: int) -> bool:
    poll = select.poll()
    poll.register(lifeline, 0)
    return bool(poll.poll(0))


def _exit_at_end(lifeline: int) -> None:
    while os.read(lifeline, 4096):
        pass
    os._exit(1)
