"""How a process actor talks to its process: over ZeroMQ, or by lines on the process's stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from octavo.actors.transport import Frames

__all__ = ["Link", "StdoutLink", "ZmqLink"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Link(Protocol[R_co]):
    """The way to one process. Opened before it is spawned and closed after its death; used once."""

    def open(self, name: str, incarnation: int) -> Mapping[str, str]:
        """Get ready and return the environment variables that tell the process how to connect."""

    async def connected(self) -> None:
        """Wait, after the first message has come, until `send` can reach the process."""

    def send(self, frames: Frames) -> None:
        """Queue a message to the process. Raises SendFull instead of waiting."""

    async def receive(self) -> list[R_co]:
        """Wait for messages from the process and return all that are there, decoded."""

    def line(self, text: str) -> bool:
        """Take a line from the process's stdout if it is a message; otherwise return False."""

    def close(self) -> None:
        """Close. Idempotent."""


class ZmqLink(Generic[R]):
    """Bind PUSH (to the process) and PULL (from it) over ipc in a folder that only this user can enter.

    The process connects with `octavo.actors.child.Parent`. The socket files carry the incarnation, so that a process
    of an earlier one cannot reach this link; they are removed by `close`.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        folder: Path,
        decode: Callable[[list[bytes]], R],
        *,
        hwm: int = 1000,
    ) -> None:
        """Keep the arguments; `folder` must have mode 0700 when the link opens, or ConfigError is raised."""
        raise NotImplementedError


class StdoutLink:
    """Take each line on stdout that is a JSON object with a key "event" for a message. Nothing can be sent."""
