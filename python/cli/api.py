"""A small client of the OpenAI API for the terminal: one request at a time, answers as they come."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from collections.abc import Iterator
from typing import Any

from octavo.benchmarks.sse import Events
from octavo.errors import OctavoError

__all__ = ["Api"]


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Api:
    """Requests to one server. `url` is its address, with or without the path /v1, or unix:/path of its socket."""

    def __init__(self, url: str, key: str = "", timeout_s: float = 600.0) -> None:
        self._unix = url.removeprefix("unix:") if url.startswith("unix:/") else None
        if self._unix is not None:
            url = "http://localhost"
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OctavoError(f"--url {url}: must be an address such as http://127.0.0.1:8000")
        self.url = f"{parts.scheme}://{parts.netloc}" if self._unix is None else f"unix:{self._unix}"
        #: In front of every path, without /v1.
        self.prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._parts = parts
        #: What the server wants to see.
        self.key = key
        self._timeout_s = timeout_s

    def models(self) -> list[dict[str, Any]]:
        """Return the server's list of models; raises OctavoError."""
        connection, response = self._send("GET", "/v1/models", None)
        try:
            listed = json.loads(response.read())["data"]
        except (ValueError, KeyError, TypeError, http.client.HTTPException) as error:
            raise OctavoError(f"{self.url}/v1/models gave no list of models ({error})") from None
        finally:
            connection.close()
        return list(listed)

    def text(self, path: str) -> str:
        """Return what a route answers to GET; raises OctavoError."""
        connection, response = self._send("GET", path, None)
        try:
            return response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise OctavoError(f"the connection to {self.url} broke ({error or type(error).__name__})") from None
        finally:
            connection.close()

    def model(self, wanted: str | None) -> str:
        """Return the name to ask for: the wanted one, else the server's first; raises OctavoError."""
        names = [str(one.get("id")) for one in self.models()]
        if wanted is not None and wanted not in names:
            raise OctavoError(f"{self.url} does not serve {wanted}; it serves {', '.join(names) or 'nothing'}")
        if not names:
            raise OctavoError(f"{self.url} serves no model")
        return wanted or names[0]

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a streamed answer; closing the iterator ends the request. Raises OctavoError."""
        connection, response = self._send("POST", path, body | {"stream": True})
        events = Events()
        try:
            while piece := response.read1(65536):
                for payload in events.feed(piece):
                    if payload == b"[DONE]":
                        return
                    chunk = json.loads(payload)
                    if "error" in chunk:
                        raise OctavoError(_message(payload))
                    yield chunk
            raise OctavoError("the server ended the answer early; its log says why")
        except (OSError, http.client.HTTPException) as error:
            raise OctavoError(f"the connection to {self.url} broke ({error or type(error).__name__})") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._unix is not None:
            return _UnixConnection(self._unix, self._timeout_s)
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connection()
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self.key}"} if self.key else {})
        try:
            connection.request(method, self.prefix + path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OctavoError(
                f"no server answers at {self.url} ({error or type(error).__name__}): start one with `octavo serve "
                "MODEL`, or give its --url"
            ) from None
        if response.status != 200:
            text = response.read(65536)
            connection.close()
            raise OctavoError(f"{self.url} answered {response.status}: {_message(text)}")
        return connection, response


def _message(text: bytes) -> str:
    """Return what an error body says."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace").strip() or "no reason given"
