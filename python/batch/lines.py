"""The input: one request a line, as OpenAI's batch files have them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from octavo.errors import ConfigError

__all__ = ["URLS", "BadLine", "Lines", "Request"]

#: Routes that a line may name; whether the model can answer there, the server says.
URLS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/score",
    "/score",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
)
#: A line that is longer holds no request that a server would read.
MAX_LINE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What a line asks for: the body goes to the URL as it is."""

    custom_id: str
    url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds no request: why, and whose it is where that can be read."""

    custom_id: str | None
    code: str
    message: str


class Lines:
    """The lines of a file that are not blank, by their numbers from 0. Use as a context manager.

    The file is read when a line is asked for, so that it may be larger than memory.
    """

    def __init__(self, path: Path) -> None:
        """Find the lines. Raises ConfigError where the file cannot be read."""
        self.path = path
        self._starts: list[tuple[int, int, int]] = []  # offset, length, number in the file from 1
        digest = hashlib.sha256()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"--input-file {path}: {error.strerror}", "input-file") from None
        at = 0
        for number, line in enumerate(self._file, 1):
            digest.update(line)
            if line.strip():
                self._starts.append((at, len(line), number))
            at += len(line)
        #: SHA-256 of the whole file.
        self.digest = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._starts)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, number: int) -> Request | BadLine:
        """Return what a line asks for."""
        start, length, shown = self._starts[number]
        if length > MAX_LINE_BYTES:
            return BadLine(None, "invalid_line", f"Line {shown} has {length} bytes; at most {MAX_LINE_BYTES} are read.")
        self._file.seek(start)
        return _parse(self._file.read(length), shown)

    def custom_ids(self) -> Iterator[str | None]:
        """Yield the id of each line."""
        for number in range(len(self)):
            yield self.read(number).custom_id


def _parse(line: bytes, shown: int) -> Request | BadLine:
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return BadLine(None, "invalid_json", f"Line {shown} is no JSON object: {error}.")
    custom_id = _string(fields, "custom_id")
    if custom_id is None:
        return BadLine(None, "invalid_line", f"Line {shown}: 'custom_id' must be a string.")

    def bad(message: str) -> BadLine:
        return BadLine(custom_id, "invalid_line", f"Line {shown}: {message}")

    if "method" in fields and _string(fields, "method") != "POST":
        return bad("'method' must be \"POST\".")
    url = _string(fields, "url")
    if url not in URLS:
        given = "it is missing" if url is None else f"got {url[:100]!r}"
        return bad(f"'url' must be one of {', '.join(URLS)}; {given}.")
    body = bytes(fields.get("body", b"null"))
    try:
        asked = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        return bad("'body' must be an object: the request's body.")
    if bytes(asked.get("stream", b"null")).strip() not in (b"null", b"false"):
        return bad("'stream' cannot be used in a batch. Leave it out.")
    return Request(custom_id, url, body)


def _string(fields: dict[str, msgspec.Raw], name: str) -> str | None:
    try:
        return msgspec.json.decode(fields.get(name, b"null"), type=str | None)
    except (msgspec.MsgspecError, RecursionError):
        return None
