"""The wire between frontend and core: golden bytes, tolerance for older and newer peers, errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from octavo.errors import ProtocolError
from octavo.wire.codec import CORE, FRONTEND, HEADER, pack_tokens, unpack_tokens
from tests.wire.make_golden import CASES, GOLDEN, vectors

CODECS: dict[str, Any] = {"header": HEADER, "frontend": FRONTEND, "core": CORE}
ROWS: list[dict[str, str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
VALUES = {case.name: case.value for case in CASES}


def test_the_file_is_current() -> None:
    assert vectors() == ROWS, "the wire changed: if it only grew, run python -m tests.wire.make_golden"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_golden(row: dict[str, str]) -> None:
    codec = CODECS[row["side"]]
    decoded = codec.decode(bytes.fromhex(row["hex"]))
    assert decoded == VALUES[row.get("equals", row["name"])]
    if "equals" not in row:
        assert codec.encode(decoded).hex() == row["hex"]


def test_every_message_has_a_vector() -> None:
    kinds = {type(case.value).__name__ for case in CASES}
    for codec_type in ("FrontendMessage", "CoreMessage"):
        from octavo.wire import frontend

        union = getattr(frontend, codec_type)
        assert {member.__name__ for member in union.__args__} <= kinds


@pytest.mark.parametrize(
    ("codec", "data", "words"),
    [
        (FRONTEND, msgspec.msgpack.encode(["Novelty", 1]), "Novelty"),
        (FRONTEND, msgspec.msgpack.encode(["AddRequest", 1]), "frontend"),
        (CORE, b"", "engine core"),
        (CORE, b"\xc1", "engine core"),
        (HEADER, msgspec.msgpack.encode([1, 2, 3]), "header"),
        (HEADER, msgspec.msgpack.encode({"seq": 1}), "header"),
    ],
)
def test_other_bytes_are_a_protocol_error(codec: Any, data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        codec.decode(data)


def test_tokens() -> None:
    ids = [0, 1, -1, 2**31 - 1, -(2**31)]
    assert pack_tokens([1]) == b"\x01\0\0\0"
    assert unpack_tokens(pack_tokens(ids)) == ids
    assert unpack_tokens(b"") == []
    with pytest.raises(ProtocolError, match="4294967296"):
        pack_tokens([2**32])
    with pytest.raises(ProtocolError, match="5 bytes"):
        unpack_tokens(b"12345")
