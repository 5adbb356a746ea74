"""The frontend as the engine sees it. `FrontendLink` is the real one; tests hand the engine one in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from octavo.wire.frontend import AbortRequests, AddRequest, Control

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.wire.frontend import Delta, EngineInfo, Stats

__all__ = ["Frontend", "FrontendEvent", "FrontendGone"]


@dataclass(frozen=True, slots=True)
class FrontendGone:
    """The frontend is a new process: nobody waits for the requests that came before this. Drop them all."""


FrontendEvent = AddRequest | AbortRequests | Control | FrontendGone


class Frontend(Protocol):
    """What an engine reads from its frontend and tells it. All methods belong to one event loop.

    No method but `receive` and `drain` waits: what cannot be sent now is merged and sent later. Nothing said here is
    lost unless the session is opened anew; then the frontend sends every open request again, with a higher attempt
    and the ids it has, and what the engine says of older attempts counts for nothing.
    """

    async def receive(self) -> FrontendEvent:
        """Wait for the next event and take it. A cancelled call takes none. One task receives."""

    def receive_nowait(self) -> FrontendEvent | None:
        """Take the next event if there is one."""

    def ready(self, info: EngineInfo) -> None:
        """Say that requests may come. Said again by itself whenever a session opens, until `fault`."""

    def fault(self, kind: str, message: str, *, restarting: bool) -> None:
        """Say that the workers are gone; `kind` is as in EngineFault. Said again by itself, until `ready`."""

    def deliver(self, step: int, deltas: Sequence[Delta]) -> None:
        """Say what a step brought: at most one delta a request, each starting where the one before ended."""

    def reject(self, request: AddRequest, code: str, message: str, param: str | None = None) -> None:
        """Say that a request cannot run, for good; `code` is as in RequestRejected."""

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        """Answer a Control; `code` and `param` are as in ControlDone."""

    def stats(self, stats: Stats) -> None:
        """Say how things stand. Of those that wait to be sent only the latest is kept."""

    async def drain(self, reason: str) -> bool:
        """Say goodbye and wait, bounded, until the frontend has acknowledged all. Returns whether it has."""
