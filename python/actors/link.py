"""How a process actor talks to its process: over ZeroMQ, or by lines on the process's stdout."""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import zmq

from octavo.actors.errors import ActorError, MailboxClosed, MailboxFull
from octavo.actors.mailbox import Mailbox
from octavo.actors.transport import Socket, ZmqSocket
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from octavo.actors.transport import Context, Frames

__all__ = ["Link", "StdoutLink", "ZmqLink"]

R = TypeVar("R")

log = logging.getLogger(__name__)

#: Bytes that show that a message is the process's own.
KEY_BYTES = 16


class Link(Protocol[R]):
    """The way to one process. Opened before it is spawned and closed after its death; used once."""

    def open(self, name: str, incarnation: int) -> Mapping[str, str]:
        """Get ready and return the environment variables that tell the process how to connect."""

    async def writable(self) -> None:
        """Wait until `send` reaches the process and has room."""

    def send(self, frames: Frames) -> None:
        """Queue a message to the process. Raises SendFull instead of waiting."""

    async def receive(self) -> list[R]:
        """Wait for messages from the process and return all that are there, decoded."""

    def line(self, text: str) -> bool:
        """Take a line from the process's stdout if it is a message; otherwise return False."""

    def close(self) -> None:
        """Close. Idempotent."""


class ZmqLink(Generic[R]):
    """Bind PAIR (to the process) and PULL (from it) over ipc in a folder that only this user can enter.

    The process connects with `octavo.actors.child.Parent`. The socket files carry the incarnation, so that a process
    of an earlier one cannot reach this link; they are removed by `close`. Whatever else of this user connects is
    harmless: a PAIR has one peer, so that no message to the process goes elsewhere, and messages that do not begin with
    the key, which the process has from its environment, are dropped and counted.
    """

    def __init__(self, context: Context, folder: Path, decode: Callable[[list[bytes]], R], *, hwm: int = 1000) -> None:
        """Keep the arguments; `folder` must have mode 0700 when the link opens, or ConfigError is raised."""
        self._context = context
        self._folder = folder
        self._decode = decode
        self._hwm = hwm
        self._key = secrets.token_bytes(KEY_BYTES)
        self.dropped = 0  # messages of strangers
        self._files: list[Path] = []
        self._sockets: list[Socket] = []
        self._push: Socket
        self._pull: Socket

    def open(self, name: str, incarnation: int) -> Mapping[str, str]:
        """Bind the sockets. Raises ConfigError when the folder is open to others or its path is too long."""
        _require_private(self._folder)
        stem = f"{name}-{incarnation & 0xFFFFFFFF:08x}"
        self._files = [self._folder / f"{stem}-{way}.sock" for way in ("in", "out")]
        inbox, outbox = map(_endpoint, self._files)
        self._push = self._bind(zmq.PAIR, inbox)
        self._pull = self._bind(zmq.PULL, outbox)
        return {"OCTAVO_INBOX": inbox, "OCTAVO_OUTBOX": outbox, "OCTAVO_KEY": self._key.hex()}

    async def writable(self) -> None:
        """Wait until the process has connected and there is room."""
        await self._push.writable()

    def send(self, frames: Frames) -> None:
        """Queue a message to the process. Raises SendFull instead of waiting."""
        self._push.send(frames)

    async def receive(self) -> list[R]:
        """Wait for messages from the process and return all that are there, decoded. Raises what `decode` raises."""
        while True:
            own = [frames[1:] for frames in await self._pull.drain() if self._is_own(frames)]
            if own:
                return [self._decode(frames) for frames in own]

    def line(self, text: str) -> bool:
        """Return False: stdout carries no messages."""
        return False

    def close(self) -> None:
        """Close the sockets and remove their files."""
        for socket in self._sockets:
            socket.close()
        for file in self._files:
            file.unlink(missing_ok=True)

    def _is_own(self, frames: list[bytes]) -> bool:
        if len(frames) > 1 and hmac.compare_digest(frames[0], self._key):
            return True
        self.dropped += 1
        if self.dropped.bit_count() == 1:  # the first, the second, the fourth, ...: a flood is no flood in the log
            log.warning("%s: %d messages of strangers came and were dropped", self._files[-1].name, self.dropped)
        return False

    def _bind(self, kind: int, endpoint: str) -> Socket:
        socket = ZmqSocket.bind(self._context, kind, endpoint, hwm=self._hwm)
        self._sockets.append(socket)
        return socket


class StdoutLink:
    """Take each line on stdout that is a JSON object with a key "event" for a message. Nothing can be sent."""

    def __init__(self) -> None:
        self._events: Mailbox[dict[str, Any]] = Mailbox(1000)

    def open(self, name: str, incarnation: int) -> Mapping[str, str]:
        """Return nothing: there is nothing to connect to."""
        return {}

    async def writable(self) -> None:
        """Return at once: nothing is ever sent."""

    def send(self, frames: Frames) -> None:
        """Raise ActorError."""
        raise ActorError("this process takes no messages; stop it by a signal")

    async def receive(self) -> list[dict[str, Any]]:
        """Wait for lines that are events and return them."""
        return await self._events.drain()

    def line(self, text: str) -> bool:
        """Take the line if it is an event; one that finds 1,000 unread is passed on as text."""
        event = _event(text)
        if event is None:
            return False
        try:
            self._events.put_nowait(event)
        except (MailboxFull, MailboxClosed):
            return False
        return True

    def close(self) -> None:
        """Take no more events."""
        self._events.close()


def _event(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _require_private(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{folder} holds sockets and must belong to this user with mode 0700; run: chmod 700 {folder}"
        )


def _endpoint(path: Path) -> str:
    size = len(os.fsencode(path))
    if size > zmq.IPC_PATH_MAX_LEN:
        raise ConfigError(
            f"the socket path {path} has {size} bytes, at most {zmq.IPC_PATH_MAX_LEN} are possible; "
            "set TMPDIR or XDG_RUNTIME_DIR to a shorter folder"
        )
    return f"ipc://{path}"
