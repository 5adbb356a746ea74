from __future__ import annotations

import pytest

from octavo.layers.parallel import kv_heads_of, query_heads_of, share


@pytest.mark.parametrize("total", range(1, 20))
@pytest.mark.parametrize("size", range(1, 9))
def test_shares_are_a_partition_as_even_as_can_be(total: int, size: int) -> None:
    shares = [share(total, rank, size) for rank in range(size)]
    assert [unit for mine in shares for unit in mine] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (8, 8), (8, 2), (8, 1), (32, 8), (6, 3), (12, 4)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_query_head_is_with_its_key_value_head(heads: int, kv_heads: int, size: int) -> None:
    seen: list[int] = []
    for rank in range(size):
        mine, queries = kv_heads_of(kv_heads, rank, size), query_heads_of(heads, kv_heads, rank, size)
        assert len(mine) >= 1
        for head in queries:
            assert head // (heads // kv_heads) in mine
        # Query head n of this rank reads key-value head n // (N / K) of this rank.
        if len(queries):
            group = len(queries) / len(mine)
            assert group == int(group)
            for local, head in enumerate(queries):
                assert mine[local // int(group)] == head // (heads // kv_heads)
        seen += queries
    assert sorted(seen) == list(range(heads))
