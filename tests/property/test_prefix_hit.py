"""The longest hit over all groups against brute force over every length."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine_core.cache.block_hash import BlockHashes
from octavo.engine_core.cache.coordinator import KvCache
from octavo.engine_core.cache.domain import Base, domain_root
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import build_cache, group_layers
from tests.engine.fake_worker import WINDOW, fake_specs

BASE = Base("m", "float32")
ROOT = domain_root(BASE, None)
FLIGHT = Flight(1, 64, 1)


def plant(cache: KvCache, tokens: array[int], keep: list[set[int]]) -> None:
    """Put the blocks with the given indices into the index, as if others had computed them."""
    for group, indices in zip(cache.groups, keep, strict=True):
        chain = BlockHashes(ROOT, group.block_tokens)
        chain.extend(tokens)
        for index in sorted(indices):
            if index < len(chain):
                block = group.pool.allocate()
                group.pool.seal(block, chain[index])
                group.pool.release([block])


def possible(hit: int, sizes: tuple[int, int, int], keep: list[set[int]]) -> bool:
    """Say whether one can go on after `hit` tokens: by definition, position by position."""
    full, window, state = sizes
    if any(hit % size for size in sizes):
        return False
    all_full = all(position // full in keep[0] for position in range(hit))
    seen = range(max(0, hit - WINDOW + 1), hit)
    in_window = all(position // window in keep[1] for position in seen)
    return all_full and in_window and (hit == 0 or hit // state - 1 in keep[2])


@given(
    length=st.integers(1, 60),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 8)),
    data=st.data(),
)
def test_longest_hit_is_found(length: int, sizes: tuple[int, int, int], data: st.DataObject) -> None:
    tokens = array("i", range(length))
    groups = group_layers(fake_specs(), dict(zip(("full", "window", "state"), sizes, strict=True)))
    cache = build_cache(groups, (80, 80, 80), FLIGHT, BASE)
    run = data.draw(st.integers(0, length))
    holes = data.draw(st.lists(st.sets(st.integers(0, 60), max_size=3), min_size=3, max_size=3))
    keep = [set(range(run)) - hole for hole in holes]
    plant(cache, tokens, keep)
    chains = cache.open_chains(None)
    hit = cache.longest_hit(chains, tokens)
    assert hit == max(h for h in range(length) if possible(h, sizes, keep))
    tables = cache.open(chains, hit)
    cache.check([tables])
    assert all(len(t.ids) == hit // g.block_tokens for g, t in zip(cache.groups, tables.tables, strict=True))
    cache.close(tables, None)
    cache.check([])


def test_another_root_finds_nothing() -> None:
    tokens = array("i", range(40))
    groups = group_layers(fake_specs(), {"full": 4, "window": 4, "state": 8})
    cache = build_cache(groups, (80, 80, 80), FLIGHT, Base("m", "float32", "1"))
    plant(cache, tokens, [set(range(20))] * 3)
    assert cache.longest_hit(cache.open_chains(None), tokens) == 0
