"""Hash chains that grow."""

from __future__ import annotations

from array import array

import pytest

from octavo.engine_core.cache.block_hash import BlockHashes
from octavo.engine_core.cache.domain import Base, domain_root

ROOT = domain_root(Base("m", "bfloat16"), None)


def hashes(tokens: list[int], root: bytes = ROOT) -> list[bytes]:
    chain = BlockHashes(root, 4)
    chain.extend(array("i", tokens))
    return [chain[i] for i in range(len(chain))]


def test_growing_equals_hashing_at_once() -> None:
    tokens = array("i", range(30))
    chain = BlockHashes(ROOT, 4)
    for end in range(31):
        chain.extend(tokens[:end])
    assert len(chain) == 7
    assert [chain[i] for i in range(7)] == hashes(list(range(30)))
    with pytest.raises(IndexError):
        chain[7]


def test_a_hash_covers_all_tokens_before() -> None:
    one, other = hashes(list(range(12))), hashes([99, *range(1, 12)])
    assert not set(one) & set(other)
    assert hashes(list(range(11))) == one[:2]


def test_the_root_covers_model_dtype_and_weights() -> None:
    roots = [("m", "bfloat16", "0"), ("n", "bfloat16", "0"), ("m", "float32", "0"), ("m", "bfloat16", "1")]
    first = {hashes([1, 2, 3, 4], domain_root(Base(*fields), None))[0] for fields in roots}
    assert len(first) == 4
