"""HTTP/1.1 by hand: bytes out, a checked answer back. What a client library would refuse to send is sent as it is."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "NotHttp", "exchange"]

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9]) [ -~]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_MOST = 64 << 20


class NotHttp(Exception):
    """What came is no HTTP answer; says why, with the bytes."""


@dataclass(frozen=True)
class Answer:
    """One answer. Names of headers are in lower case; of several the last."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def exchange(address: tuple[str, int], raw: bytes, end: bool, timeout_s: float) -> Answer | None:
    """Send the bytes, say that no more come if `end`, and read one answer; None if the server closes without a byte.

    Raises NotHttp, TimeoutError where the answer does not come.
    """
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(raw)
            if end:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all was sent: the answer says why
        return _read(_Reader(connection), raw.split(b" ", 1)[0])


class _Reader:
    """Bytes of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.held = b""

    def more(self) -> bool:
        """Read what is there; False at the end."""
        try:
            part = self._connection.recv(65536)
        except ConnectionResetError:
            part = b""
        self.held += part
        if len(self.held) > _MOST:
            raise NotHttp(f"more than {_MOST} bytes")
        return bool(part)

    def until(self, mark: bytes) -> bytes:
        """Return what stands before the mark."""
        while mark not in self.held:
            if not self.more():
                raise NotHttp(f"ended before {mark!r}: {self.held[:200]!r}")
        found, _, self.held = self.held.partition(mark)
        return found

    def take(self, count: int) -> bytes:
        """Return so many bytes."""
        while len(self.held) < count:
            if not self.more():
                raise NotHttp(f"ended after {len(self.held)} of {count} bytes: {self.held[:200]!r}")
        found, self.held = self.held[:count], self.held[count:]
        return found

    def rest(self) -> bytes:
        """Return all that comes until the end."""
        while self.more():
            pass
        found, self.held = self.held, b""
        return found


def _read(reader: _Reader, method: bytes) -> Answer | None:
    if not reader.more():
        return None
    while True:
        status, headers = _head(reader)
        if status >= 200:  # not "100 Continue"
            break
    if method == b"HEAD" or status in (204, 304):
        body = b""
    elif headers.get("transfer-encoding") == "chunked":
        body = _chunks(reader)
    elif "content-length" in headers:
        body = reader.take(int(headers["content-length"]))
    else:
        body = reader.rest()
    return Answer(status, headers, body)


def _head(reader: _Reader) -> tuple[int, dict[str, str]]:
    first, *lines = reader.until(b"\r\n\r\n").split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise NotHttp(f"no status line: {first[:200]!r}")
    headers = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise NotHttp(f"no header: {line[:200]!r}")
        headers[header[1].decode().lower()] = header[2].decode("latin-1")
    return int(status[1]), headers


def _chunks(reader: _Reader) -> bytes:
    body = b""
    while size := int(reader.until(b"\r\n"), 16):
        body += reader.take(size)
        if reader.take(2) != b"\r\n":
            raise NotHttp("a chunk is longer than it says")
    if reader.take(2) != b"\r\n":
        raise NotHttp("trailers, or no end of the last chunk")
    return body
