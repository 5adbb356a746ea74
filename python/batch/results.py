"""The output: one result a line, as OpenAI's batch files have them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from octavo.batch.lines import BadLine

__all__ = ["failed", "result"]


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Error(msgspec.Struct):
    code: str
    message: str


class _Result(msgspec.Struct):
    id: str
    custom_id: str | None
    response: _Response | None
    error: _Error | None


class _Told(msgspec.Struct):
    """What a server says that went wrong."""

    message: str = ""
    code: Any = None


class _Refusal(msgspec.Struct):
    error: _Told


def _id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"


def failed(line: BadLine) -> bytes:
    """Return the result of a line that asked for nothing."""
    return msgspec.json.encode(_Result(_id(), line.custom_id, None, _Error(line.code, line.message)))


def result(custom_id: str, status: int, request_id: str, body: bytes) -> bytes:
    """Return the result of a line that was answered, without a line's end.

    The body stands in `response` whatever the status is; where that is no success, `error` says what it says.
    """
    try:
        whole = bytes(msgspec.json.decode(body, type=msgspec.Raw))
        if b"\n" in whole:
            whole = msgspec.json.format(whole, indent=-1)
    except msgspec.MsgspecError:
        whole = msgspec.json.encode(body.decode(errors="replace"))
    error = None if status == 200 else _error(status, whole)
    return msgspec.json.encode(_Result(_id(), custom_id, _Response(status, request_id, msgspec.Raw(whole)), error))


def _error(status: int, body: bytes) -> _Error:
    try:
        told = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        return _Error(f"http_{status}", f"the server answered with status {status}")
    return _Error(str(told.code or f"http_{status}"), told.message)
