"""What a process writes to stdout and stderr: passed on line by line, the last lines kept."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import ByteReceiveStream, Process

__all__ = ["Console"]

#: Lines kept for the report of a death.
KEPT_LINES = 40
#: Bytes after which a line is cut, so that output without line ends stays bounded.
LINE_LIMIT = 1 << 16


class Console:
    """Read both streams of one process to their end, or until `close`; nothing else interrupts it."""

    def __init__(self, take: Callable[[str], bool]) -> None:
        """`take` is offered each line of stdout and returns whether it was a message, which then goes no further."""
        self._take = take
        self._last: deque[str] = deque(maxlen=KEPT_LINES)
        self._scope = anyio.CancelScope(shield=True)
        self._ended = anyio.Event()

    @property
    def last(self) -> tuple[str, ...]:
        """The last lines that were passed on."""
        return tuple(self._last)

    async def read(self, process: Process) -> None:
        """Read until both streams end."""
        assert process.stdout is not None
        assert process.stderr is not None
        with self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, process.stdout, self._print_unless_taken)
                group.start_soon(self._pump, process.stderr, self._print)
        self._ended.set()

    async def close(self, timeout_s: float) -> None:
        """Wait for the end, `timeout_s` at most: a stray process may hold the other end of a pipe for ever."""
        with anyio.move_on_after(timeout_s):
            await self._ended.wait()
        self._scope.cancel()

    async def _pump(self, stream: ByteReceiveStream, sink: Callable[[list[str]], None]) -> None:
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_LIMIT:
                lines, rest = [*lines, rest], b""
            sink([_text(line) for line in lines])
        if rest:
            sink([_text(rest)])

    def _print_unless_taken(self, lines: list[str]) -> None:
        self._print([line for line in lines if not self._take(line)])

    def _print(self, lines: list[str]) -> None:
        self._last.extend(lines)
        try:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # our own stderr is gone: the process need not suffer for it


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")
