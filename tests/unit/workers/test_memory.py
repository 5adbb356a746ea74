from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from octavo.errors import ProtocolError
from octavo.kernels.ref.attention import RefAttention
from octavo.wire.worker import KvGroupAlloc, KvSpec, KvTensor
from octavo.workers.memory import allocate_caches, cache_bytes, free_bytes


def system(tmp_path: Path, available: str, limit: str = "max", current: str = "0") -> tuple[Path, Path]:
    (tmp_path / "meminfo").write_text(available)
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(current + "\n")
    return tmp_path, tmp_path


@pytest.mark.parametrize(
    ("available", "limit", "current", "free"),
    [
        ("MemTotal: 9 kB\nMemAvailable:   4 kB\n", "max", "0", 4096),
        ("MemAvailable: 4 kB\n", "3000", "1000", 2000),
        ("MemAvailable: 4 kB\n", "3000", "5000", 0),
        ("MemAvailable: x kB\n", "max", "0", 0),
        ("", "max", "0", 0),
    ],
)
def test_free_memory(tmp_path: Path, available: str, limit: str, current: str, free: int) -> None:
    assert free_bytes(*system(tmp_path, available, limit, current)) == free


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a", tmp_path / "b") == 0


def model(*specs: KvSpec) -> Any:
    return cast("Any", SimpleNamespace(kv_specs=lambda: specs, kv_heads=lambda layer: 2))


def spec(layer: int, kind: str = "full") -> KvSpec:
    kept = (3, 8)  # three heads on the rank with most, two on this one
    return KvSpec(layer, kind, (KvTensor("k", kept, "bfloat16"), KvTensor("v", kept, "bfloat16")))


def test_caches_have_this_ranks_heads_and_are_zero() -> None:
    groups = (KvGroupAlloc(0, 4, 5, (1,)), KvGroupAlloc(1, 2, 7, (0,)))
    caches = allocate_caches(groups, model(spec(0), spec(1)), RefAttention(), "cpu")
    assert [tuple(cache.k.shape) for cache in caches] == [(7, 2, 2, 8), (5, 2, 4, 8)]
    assert cache_bytes(caches) == 2 * 2 * (7 * 2 * 2 * 8 + 5 * 2 * 4 * 8)
    assert not any(cache.k.any() or cache.v.any() for cache in caches)


@pytest.mark.parametrize(("kind", "layers"), [("full", (1,)), ("state", (0,))])
def test_layers_without_a_group_and_unknown_kinds_are_refused(kind: str, layers: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match=f"layer 0 of kind '{kind}' has no KV group"):
        allocate_caches((KvGroupAlloc(0, 4, 5, layers),), model(spec(0, kind)), RefAttention(), "cpu")
