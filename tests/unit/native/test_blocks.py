"""The keys of KV blocks as Python sees them."""

from __future__ import annotations

import struct
from importlib.metadata import version

import octavo_native
import pytest
from hypothesis import given
from hypothesis import strategies as st
from octavo_native import hash_blocks, root_key

ROOT = bytes(16)


def packed(*ids: int) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)


def test_version_is_that_of_the_distribution() -> None:
    assert octavo_native.__version__ == version("octavo-native")


def test_keys_are_sixteen_bytes_for_each_full_block() -> None:
    assert hash_blocks(ROOT, packed(1, 2, 3), 4) == b""
    assert len(hash_blocks(ROOT, packed(*range(11)), 4)) == 32


def test_scheme_is_fixed() -> None:
    # The same vector stands in the Rust crate: keys outlive a process in the disk tier.
    assert (
        hash_blocks(ROOT, packed(1, -2, 3, 1 << 20), 2).hex()
        == "afbb32e2d48d48093c1b39cf3471a4c5a6c0de638651325806bf30449b7a9338"
    )
    assert root_key([("model", b"m"), ("kv_dtype", b"bfloat16")]).hex() == "254d2a2a5c5e33b2a37bbcb36d8524b0"


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=40), st.integers(1, 5), st.integers(0, 8))
def test_chain_continues_from_any_block(ids: list[int], block: int, cut: int) -> None:
    tokens = packed(*ids)
    head = min(cut, len(ids) // block) * block * 4
    first = hash_blocks(ROOT, tokens[:head], block)
    rest = hash_blocks(first[-16:] or ROOT, tokens[head:], block)
    assert first + rest == hash_blocks(ROOT, tokens, block)


def test_long_inputs_give_the_same_keys() -> None:
    # Above 16 KiB the hash runs without the interpreter.
    tokens = packed(*range(10_000))
    keys, root = b"", ROOT
    for start in range(0, len(tokens), 64):
        root = hash_blocks(root, tokens[start : start + 64], 16)
        keys += root
    assert hash_blocks(ROOT, tokens, 16) == keys


def test_roots_tell_roles_and_borders_apart() -> None:
    lists = [
        [],
        [("salt", b"")],
        [("salt", b"model")],
        [("model", b"salt")],
        [("salt", b"a"), ("b", b"c")],
        [("salt", b"ab"), ("b", b"c")],
        [("b", b"c"), ("salt", b"ab")],
    ]
    keys = {root_key(fields) for fields in lists}
    assert len(keys) == len(lists)
    assert {len(key) for key in keys} == {16}


@pytest.mark.parametrize(
    ("root", "tokens", "block", "said"),
    [
        (b"short", b"", 1, "root has 5 bytes"),
        (ROOT, b"abc", 1, "tokens has 3 bytes"),
        (ROOT, b"", 0, "block_tokens is 0"),
        (ROOT, b"", -7, "block_tokens is -7"),
    ],
)
def test_wrong_arguments_are_value_errors_with_the_numbers(root: bytes, tokens: bytes, block: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hash_blocks(root, tokens, block)


def test_empty_tag_is_refused_by_its_place() -> None:
    with pytest.raises(ValueError, match="field 1 of 2 has an empty tag"):
        root_key([("model", b"m"), ("", b"x")])
