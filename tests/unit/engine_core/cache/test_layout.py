"""Groups from specs, and how memory is divided."""

from __future__ import annotations

import pytest

from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import (
    block_tokens_by_kind,
    build_cache,
    group_layers,
    longest_context,
    size_groups,
)
from octavo.errors import ConfigError, ProtocolError
from octavo.wire.worker import KvSpec, KvTensor
from tests.engine.fake_worker import fake_specs

FLIGHT = Flight(1, 64, 1)
KV = (KvTensor("k", (3, 64), "bfloat16"), KvTensor("v", (3, 64), "bfloat16"))


def test_layers_with_equal_specs_share_a_group() -> None:
    full, window, state = group_layers(fake_specs(), {"full": 4, "window": 3, "state": 6})
    assert (full.layers, window.layers, state.layers) == ((0, 3), (1,), (2,)), "layer 4 shares the cache of layer 0"
    assert (full.page_bytes, window.page_bytes, state.page_bytes) == (2 * 4 * 64, 3 * 64, 32)
    assert (full.block_tokens, window.block_tokens, state.block_tokens) == (4, 3, 6)


def test_other_shapes_make_other_groups() -> None:
    other = (KvTensor("k", (1, 64), "bfloat16"), KvTensor("v", (1, 64), "bfloat16"))
    groups = group_layers([KvSpec(0, "full", KV), KvSpec(1, "full", other), KvSpec(2, "full", KV)], {"full": 16})
    assert [group.layers for group in groups] == [(0, 2), (1,)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (KvSpec(0, "cross", KV), "'cross'"),
        (KvSpec(0, "full", (KvTensor("k", (1,), "int3"),)), "'int3'"),
    ],
)
def test_unknown_kinds_and_dtypes_are_refused(spec: KvSpec, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        group_layers([spec], block_tokens_by_kind(16))


def test_one_full_group_gets_all_the_memory() -> None:
    groups = group_layers([KvSpec(layer, "full", KV) for layer in range(30)], block_tokens_by_kind(16))
    sizes = size_groups(groups, 1 << 28, 256, FLIGHT)
    assert sizes == ((1 << 28) // groups[0].page_bytes,)
    assert groups[0].page_bytes == 30 * 16 * 2 * 3 * 64 * 2


def test_window_and_state_groups_are_sized_by_requests() -> None:
    groups = group_layers(fake_specs(), block_tokens_by_kind(16))
    sizes = size_groups(groups, 1 << 22, 8, FLIGHT)
    assert sum(size * group.page_bytes for size, group in zip(sizes, groups, strict=True)) <= 1 << 22
    assert sizes[1] < 100
    assert sizes[2] < 100
    assert sizes[0] * groups[0].page_bytes > 0.9 * (1 << 22)


def test_too_little_memory_is_refused_with_both_numbers() -> None:
    groups = group_layers(fake_specs(), block_tokens_by_kind(16))
    with pytest.raises(ConfigError, match=r"--kv-cache-memory-bytes 1000 .* at least \d+ bytes") as caught:
        size_groups(groups, 1000, 8, FLIGHT)
    assert caught.value.param == "kv-cache-memory-bytes"


def test_the_smallest_pool_bounds_the_context() -> None:
    groups = group_layers(fake_specs(), {"full": 4, "window": 3, "state": 6})
    assert longest_context(build_cache(groups, (11, 90, 90), FLIGHT, None), 1000) == 40
    assert longest_context(build_cache(groups, (500, 90, 90), FLIGHT, None), 1000) == 1000, "windows forget"
    assert longest_context(build_cache(groups, (500, 9, 90), FLIGHT, None), 1000) == 24, "but not this one"
