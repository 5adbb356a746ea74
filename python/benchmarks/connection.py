"""Sockets: one request at a time on each, kept alive and used again."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from octavo.benchmarks.reader import Malformed, ResponseReader, Sink
from octavo.errors import ConfigError

__all__ = ["Connections", "Server", "clock"]

#: The clock of all measurements, in seconds.
clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Server:
    """Where requests go: the address of a base URL such as http://127.0.0.1:8000 or https://host/prefix."""

    host: str
    port: int
    path: str  # in front of every endpoint; no slash at its end
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Server:
        """Read a base URL. Raises ConfigError."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise ConfigError(f"--base-url {url!r} is not like http://HOST:PORT", "base-url")
        tls = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if tls else 80), parts.path.rstrip("/"), tls)

    @property
    def authority(self) -> str:
        """Host and port as the Host header wants them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def target(self, endpoint: str) -> str:
        """Return the path of an endpoint; a /v1 that the base URL already ends with is not said twice."""
        if self.path.endswith("/v1") and endpoint.startswith("/v1/"):
            endpoint = endpoint.removeprefix("/v1")
        return self.path + endpoint


class _Connection(asyncio.Protocol):
    """One socket. Holds at most one request, from `send` until its future is done."""

    def __init__(self) -> None:
        self.usable = False
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._done: asyncio.Future[bool] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.usable = True

    def send(self, request: bytes, sink: Sink) -> asyncio.Future[bool]:
        """Write a request; the future's result is False where the connection was gone before any answer came."""
        assert self._transport is not None and self._done is None
        self._reader = ResponseReader(sink)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        now = clock()
        reader = self._reader
        if reader is None:  # nothing was asked
            self.close()
            return
        try:
            reader.feed(data, now)
        except Malformed as error:
            self.usable = False
            if not reader.done:
                reader.sink.broken(str(error), now)
            self._settle(True)
            self.close()
            return
        if reader.done:
            self.usable = self.usable and reader.keep_alive
            self._settle(True)

    def connection_lost(self, error: Exception | None) -> None:
        self.usable = False
        reader = self._reader
        if reader is None or self._done is None:
            return
        now = clock()
        if not reader.started:
            self._settle(False)
        elif not reader.eof(now):
            reader.sink.broken(f"the connection closed in the middle of the answer{_because(error)}", now)
            self._settle(True)
        else:
            self._settle(True)

    def _settle(self, answered: bool) -> None:
        done, self._done, self._reader = self._done, None, None
        if done is not None and not done.done():
            done.set_result(answered)

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


def _because(error: Exception | None) -> str:
    return f": {error}" if error is not None else ""


class Connections:
    """The sockets to one server: as many as there are requests at once. Use as an async context manager."""

    def __init__(self, server: Server, *, verify: bool = True) -> None:
        self._server = server
        self._idle: list[_Connection] = []
        self._addresses: list[str] = []
        self._tls: ssl.SSLContext | None = None
        if server.tls:
            self._tls = ssl.create_default_context()
            if not verify:
                self._tls.check_hostname = False
                self._tls.verify_mode = ssl.CERT_NONE

    async def __aenter__(self) -> Connections:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # lets the transports see that they are closed

    async def exchange(self, request: bytes, sink: Sink) -> None:
        """Send a request and wait until `sink` has been told how it ended.

        A kept connection that the server has just closed is replaced once; nothing else is tried twice. Raises OSError
        where no connection can be made.
        """
        while True:
            kept = self._take()
            connection = kept or await self._connect()
            try:
                answered = await connection.send(request, sink)
            except BaseException:
                connection.abort()
                raise
            if connection.usable:
                self._idle.append(connection)
            else:
                connection.close()
            if answered:
                return
            if kept is None:
                sink.broken("the server closed the connection without an answer", clock())
                return

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self._server.host, self._server.port, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(item[4][0]) for item in found))
        for address in self._addresses:
            try:
                _, connection = await loop.create_connection(
                    _Connection,
                    address,
                    self._server.port,
                    ssl=self._tls,
                    server_hostname=self._server.host if self._tls else None,
                )
            except OSError:
                if address == self._addresses[-1]:
                    raise
            else:
                return connection
        raise OSError(f"no address for {self._server.host}")
