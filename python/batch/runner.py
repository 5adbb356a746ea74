"""Send the lines of a batch to a server, many at once, until each has a result."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.batch.lines import BadLine, Lines, Request
from octavo.batch.results import failed, result
from octavo.benchmarks.connection import Connections, Server, clock
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.batch.journal import Journal

__all__ = ["Target", "run"]

#: Statuses that say "later": the request is sent again.
LATER = (429, 503)
#: Seconds for which a server may refuse connections, or say 503, before the run ends. It can be resumed.
PATIENCE_S = 60.0
#: Seconds between two tries where the server says nothing.
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and how many at once."""

    server: Server
    key: str
    concurrency: int


class _Answer:
    """A `Sink` that keeps one answer whole."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.failure: str | None = None
        self._pieces: list[bytes] = []

    @property
    def text(self) -> bytes:
        """The body so far."""
        return b"".join(self._pieces)

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status, self.headers = status, headers

    def body(self, data: bytes, now: float) -> None:
        self._pieces.append(data)

    def end(self, now: float) -> None:
        pass

    def broken(self, reason: str, now: float) -> None:
        self.failure = reason


async def run(lines: Lines, journal: Journal, target: Target, seen: Callable[[int], None]) -> None:
    """Give each line of the input that the journal lacks a result; tell `seen` the status of each, 0 for a bad line.

    Raises OctavoError where the server cannot be reached any more; what came is kept.
    """
    missing = iter([number for number in range(len(lines)) if number not in journal])
    workers = min(target.concurrency, max(1, len(lines) - len(journal)))
    async with Connections(target.server) as connections, _together() as start:
        for _ in range(workers):
            start(_work(missing, lines, journal, connections, target, seen))


@contextlib.asynccontextmanager
async def _together() -> AsyncIterator[Callable[..., object]]:
    """Run tasks; the first that fails ends the others, and its error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _work(
    missing: Iterator[int],
    lines: Lines,
    journal: Journal,
    connections: Connections,
    target: Target,
    seen: Callable[[int], None],
) -> None:
    for number in missing:
        line = lines.read(number)
        if isinstance(line, BadLine):
            status, text = 0, failed(line)
        else:
            status, text = await _ask(line, connections, target)
        journal.add(number, text)
        seen(status)


async def _ask(line: Request, connections: Connections, target: Target) -> tuple[int, bytes]:
    """Return the status and the result of a line. Raises OctavoError when patience is over."""
    request_id = uuid.uuid4().hex
    request = _encode(line, target, request_id)
    troubled_since: float | None = None
    while True:
        answer = _Answer()
        try:
            await connections.exchange(request, answer)
            trouble = answer.failure
        except OSError as error:
            trouble = str(error)
        if trouble is None and answer.status not in LATER:
            given = answer.headers.get(b"x-request-id", request_id.encode()).decode("latin-1")
            return answer.status, result(line.custom_id, answer.status, given, answer.text)
        troubled_since = clock() if troubled_since is None else troubled_since
        if clock() - troubled_since > PATIENCE_S and answer.status != 429:
            why = trouble or f"it answers {answer.status}: {answer.text[:300].decode(errors='replace')}"
            raise OctavoError(
                f"the server at {target.server.authority} has not answered for {PATIENCE_S:.0f} s ({why}). "
                "What came is kept: run the same command again"
            )
        await asyncio.sleep(_pause(answer))


def _pause(answer: _Answer) -> float:
    told = answer.headers.get(b"retry-after", b"")
    return min(float(told), PATIENCE_S / 4) if told.isdigit() else PAUSE_S


def _encode(line: Request, target: Target, request_id: str) -> bytes:
    head = [
        f"POST {target.server.target(line.url)} HTTP/1.1",
        f"Host: {target.server.authority}",
        "Content-Type: application/json",
        f"Content-Length: {len(line.body)}",
        f"X-Request-Id: {request_id}",
    ]
    if target.key:
        head.append(f"Authorization: Bearer {target.key}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + line.body
