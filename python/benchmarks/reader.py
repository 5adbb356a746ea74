"""HTTP/1.1 responses: bytes in, head and body out. Just what a load generator needs, and cheap.

Per piece of a streamed answer it does one find and one slice; a general client costs several times as much, which
on a small machine is taken from the server that is being measured (docs/benchmarks.md has the figures).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["Malformed", "ResponseReader", "Sink"]

MAX_HEAD_BYTES = 65536


class Malformed(ValueError):
    """The peer does not speak HTTP/1.1; the text says what it sent. Never leaves `connection`."""


class Sink(Protocol):
    """What becomes of one response. `now` is when the bytes were read."""

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Take the status and the headers, names in lower case."""

    def body(self, data: bytes, now: float) -> None:
        """Take the next piece of the body."""

    def end(self, now: float) -> None:
        """Learn that the body is complete."""

    def broken(self, reason: str, now: float) -> None:
        """Learn that the body will not be complete."""


class ResponseReader:
    """Reads one response and tells `sink`."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.done = False
        self.keep_alive = True
        self.started = False  # whether any byte came
        self._buffer = b""
        self._left = 0  # bytes of body or chunk to come
        self._step: Callable[[bytes, float], bytes | None] = self._head

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes from the socket. Raises Malformed."""
        self.started = True
        data = self._buffer + data if self._buffer else data
        self._buffer = b""
        while data:
            if self.done:
                raise Malformed(f"more than one response to one request: {data[:40]!r}")
            rest = self._step(data, now)
            if rest is None:  # not enough yet
                self._buffer = data
                return
            data = rest

    def eof(self, now: float) -> bool:
        """Learn that the peer closed; return whether that ended the body."""
        if self._step == self._until_close and not self.done:
            self._finish(now)
        return self.done

    def _finish(self, now: float) -> None:
        self.done = True
        self.sink.end(now)

    def _head(self, data: bytes, now: float) -> bytes | None:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            if len(data) > MAX_HEAD_BYTES or not data.startswith(b"HTTP/"[: len(data)]):
                raise Malformed(f"not an HTTP response: {data[:40]!r}")
            return None
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise Malformed(f"not an HTTP/1.1 response: {first[:40]!r}")
        status = int(words[1])
        if 100 <= status < 200:
            return rest
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        self.keep_alive = words[0] == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
        self.sink.head(status, headers)
        self._choose_body(status, headers, now)
        return rest

    def _choose_body(self, status: int, headers: dict[bytes, bytes], now: float) -> None:
        length = headers.get(b"content-length", b"")
        if status in (204, 304):
            self._finish(now)
        elif headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            self._step = self._chunk_size
        elif length.isdigit():
            self._left = int(length)
            self._step = self._counted
            if self._left == 0:
                self._finish(now)
        else:
            self.keep_alive = False
            self._step = self._until_close

    def _counted(self, data: bytes, now: float) -> bytes:
        piece = data[: self._left]
        self._left -= len(piece)
        self.sink.body(piece, now)
        if self._left == 0:
            self._finish(now)
        return data[len(piece) :]

    def _until_close(self, data: bytes, now: float) -> bytes:
        self.sink.body(data, now)
        return b""

    def _chunk_size(self, data: bytes, now: float) -> bytes | None:
        end = data.find(b"\r\n")
        if end < 0:
            if len(data) > 64:
                raise Malformed(f"not the size of a chunk: {data[:40]!r}")
            return None
        try:
            self._left = int(data[:end].partition(b";")[0], 16)
        except ValueError:
            raise Malformed(f"not the size of a chunk: {data[:end][:40]!r}") from None
        self._step = self._chunk if self._left else self._trailers
        return data[end + 2 :]

    def _chunk(self, data: bytes, now: float) -> bytes | None:
        if len(data) > self._left + 1:  # all of it and the line end
            piece, rest = data[: self._left], data[self._left + 2 :]
            if data[self._left : self._left + 2] != b"\r\n":
                raise Malformed("a chunk is longer than its size")
            self._step = self._chunk_size
            self.sink.body(piece, now)
            return rest
        if len(data) < self._left:
            self._left -= len(data)
            self.sink.body(data, now)
            return b""
        return None

    def _trailers(self, data: bytes, now: float) -> bytes | None:
        end = data.find(b"\r\n")
        if end < 0:
            return None
        if end == 0:
            self._finish(now)
        return data[end + 2 :]
