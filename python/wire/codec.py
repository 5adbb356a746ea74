"""Encode and decode the messages of both wires."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from octavo.errors import ProtocolError
from octavo.wire.frontend import CoreMessage, FrontendMessage, Header

__all__ = ["CORE", "FRONTEND", "HEADER", "Codec", "pack_tokens", "unpack_tokens"]

T = TypeVar("T")


class Codec(Generic[T]):
    """Encodes and decodes one type: a record, or a union of messages. Not to be shared between threads."""

    def __init__(self, type_: Any, name: str) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(type_)
        self._name = name

    def encode(self, value: T) -> bytes:
        """Return the bytes of `value`."""
        return self._encoder.encode(value)

    def decode(self, data: bytes | memoryview) -> T:
        """Return what `data` holds.

        Raises ProtocolError if it is anything else.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(f"bytes are no {self._name}: {error}") from error


#: What a frontend sends.
FRONTEND: Codec[FrontendMessage] = Codec(FrontendMessage, "message of a frontend")
#: What an engine core sends.
CORE: Codec[CoreMessage] = Codec(CoreMessage, "message of an engine core")
#: What precedes both.
HEADER: Codec[Header] = Codec(Header, "header")


def pack_tokens(ids: Sequence[int]) -> bytes:
    """Pack token ids as little-endian int32.

    Raises ProtocolError if one does not fit.
    """
    try:
        return struct.pack(f"<{len(ids)}i", *ids)
    except struct.error as error:
        raise ProtocolError(f"token ids must fit 32 bits: {max(ids, key=abs)} does not") from error


def unpack_tokens(data: bytes) -> list[int]:
    """Return the token ids in `data`.

    Raises ProtocolError if its length is not a multiple of four.
    """
    if len(data) % 4:
        raise ProtocolError(f"{len(data)} bytes cannot be packed int32 token ids")
    return list(struct.unpack(f"<{len(data) // 4}i", data))
