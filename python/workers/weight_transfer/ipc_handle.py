"""What names memory on a GPU that another process allocated; it travels as JSON, never pickled."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IpcHandle", "read_handle"]

#: A handle of CUDA has 64 bytes; torch may put a few before them.
_MOST_BYTES = 1024
_LARGEST = 1 << 50
#: How torch calls the shared memory in which it counts who uses a storage.
_COUNTER = re.compile(rb"/?torch_[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class IpcHandle:
    """One contiguous tensor in a storage of another process, as torch describes it."""

    memory: bytes  # of the allocation, for cudaIpcOpenMemHandle
    storage_bytes: int
    storage_offset: int  # bytes, of the storage in the allocation
    tensor_offset: int  # elements, of the tensor in the storage
    counter: bytes  # name of the memory in which users of the storage are counted
    counter_offset: int
    event: bytes  # that says when the trainer has written it
    event_sync: bool


def read_handle(entry: Mapping[str, Any], where: str) -> IpcHandle:
    """Read a handle; `where` is its place, for messages. Raises ControlError that names the field."""
    counter = _bytes(entry, "counter", where)
    if not _COUNTER.fullmatch(counter):
        raise _wrong(where, "counter", "must name a reference counter of torch", counter)
    sync = entry.get("event_sync")
    if not isinstance(sync, bool):
        raise _wrong(where, "event_sync", "must be true or false", sync)
    return IpcHandle(
        memory=_bytes(entry, "memory", where),
        storage_bytes=_count(entry, "storage_bytes", where),
        storage_offset=_count(entry, "storage_offset", where),
        tensor_offset=_count(entry, "tensor_offset", where),
        counter=counter,
        counter_offset=_count(entry, "counter_offset", where),
        event=_bytes(entry, "event", where),
        event_sync=sync,
    )


def _bytes(entry: Mapping[str, Any], field: str, where: str) -> bytes:
    value = entry.get(field)
    if isinstance(value, str) and 0 < len(value) <= 2 * _MOST_BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            pass
    raise _wrong(where, field, f"must be at most {_MOST_BYTES} bytes in base64", value)


def _count(entry: Mapping[str, Any], field: str, where: str) -> int:
    value = entry.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
        raise _wrong(where, field, "must be a count", value)
    return value


def _wrong(where: str, field: str, what: str, value: object) -> ControlError:
    shown = repr(value)
    return ControlError(f"'{where}.{field}' {what}; got {shown[:80]}", "invalid", f"{where}.{field}")
