"""How the KV memory is divided, and the context that follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.engine_core.cache.domain import Base
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import (
    block_tokens_by_kind,
    build_cache,
    group_layers,
    longest_context,
    size_groups,
)
from octavo.engine_core.journal import BASE_VERSION
from octavo.errors import ConfigError
from octavo.wire.worker import AllocateKv

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.engine_core.cache.coordinator import KvCache
    from octavo.engine_core.cache.events import KvEventLog
    from octavo.wire.worker import Ready

__all__ = ["KvPlan", "plan_kv"]


@dataclass(frozen=True, slots=True)
class KvPlan:
    """The cache, what the workers are told of it, and what it means for requests."""

    cache: KvCache
    allocate: AllocateKv
    max_model_len: int
    num_blocks: int  # of the first full group, or else of the first one; without the null block
    block_tokens: int  # likewise
    chunk_align: int  # tokens; where chunks end, so that states can be cached


def plan_kv(
    config: EngineConfig,
    ready: Ready,
    window: int,
    num_drafts: int,
    weight_version: str = BASE_VERSION,
    log: KvEventLog | None = None,
) -> KvPlan:
    """Divide `config.kv_cache_bytes` of each rank, or what a GPU has left, among the groups of `ready`'s layers.

    Raises ConfigError if there is not so much memory, or if the pools hold less than --max-model-len.
    """
    if not ready.kv_specs:
        return _without_kv(config)
    kv_bytes = _kv_bytes(config, ready)
    groups = group_layers(ready.kv_specs, block_tokens_by_kind(config.block_size))
    flight = Flight(window, window * config.max_num_batched_tokens, window * (1 + num_drafts))
    sizes = size_groups(groups, kv_bytes, config.max_num_seqs, flight)
    base = Base(config.model, config.dtype, weight_version) if config.enable_prefix_caching else None
    cache = build_cache(groups, sizes, flight, base, log)
    main = next((number for number, group in enumerate(groups) if group.kind == "full"), 0)
    return KvPlan(
        cache=cache,
        allocate=AllocateKv(tuple(group.alloc(size) for group, size in zip(groups, sizes, strict=True))),
        max_model_len=_max_model_len(config, cache, kv_bytes),
        num_blocks=sizes[main] - 1,
        block_tokens=groups[main].block_tokens,
        chunk_align=max((group.block_tokens for group in groups if group.kind == "state"), default=1),
    )


def _without_kv(config: EngineConfig) -> KvPlan:
    """Return the plan of a model that caches nothing: requests hold no blocks."""
    return KvPlan(
        cache=build_cache((), (), Flight(1, 1, 1), None),
        allocate=AllocateKv(()),
        max_model_len=config.max_model_len or config.model_context_len,
        num_blocks=0,
        block_tokens=config.block_size,
        chunk_align=1,
    )


def _kv_bytes(config: EngineConfig, ready: Ready) -> int:
    """Return the memory of the KV cache on each rank. Raises ConfigError if there is none, or not so much."""
    asked = config.kv_cache_bytes
    if asked is None:
        if ready.kv_bytes <= 0:
            raise ConfigError(_nothing_left(config, ready), "gpu-memory-utilization")
        return ready.kv_bytes
    if 0 < ready.free_bytes < asked:
        raise ConfigError(
            f"--kv-cache-memory-bytes {asked} is more than the {ready.free_bytes} bytes that are free"
            " after loading the weights; lower it",
            "kv-cache-memory-bytes",
        )
    return asked


def _nothing_left(config: EngineConfig, ready: Ready) -> str:
    gib = 1 << 30
    used = ready.total_bytes - ready.free_bytes
    return (
        f"--gpu-memory-utilization {config.gpu_memory_utilization:g} of the GPU's {ready.total_bytes / gib:.2f} GiB"
        f" leaves no KV cache: {used / gib:.2f} GiB are in use (weights {ready.weight_bytes / gib:.2f}), a step of"
        f" {config.max_num_batched_tokens} tokens takes {ready.step_bytes / gib:.2f}, and"
        f" {-ready.kv_bytes / gib:.2f} GiB are missing; raise it, lower --max-num-batched-tokens or --max-num-seqs,"
        " free the GPU of other programs, or share the model among more with --tensor-parallel-size"
    )


def _max_model_len(config: EngineConfig, cache: KvCache, kv_bytes: int) -> int:
    """Return the context: what was asked for if the pools hold it, or what they hold of the model's."""
    wanted = config.max_model_len if config.max_model_len is not None else config.model_context_len
    holds = longest_context(cache, wanted)
    if config.max_model_len is not None and holds < wanted:
        raise ConfigError(
            f"--max-model-len {wanted} is larger than the KV pool: {kv_bytes} bytes hold {holds} tokens;"
            f" raise {_memory_flag(config)}, or lower --max-model-len to {holds} or to auto",
            "max-model-len",
        )
    if holds < 2:
        raise ConfigError(
            f"a KV cache of {kv_bytes} bytes holds {holds} tokens; raise {_memory_flag(config)}",
            _memory_flag(config).removeprefix("--"),
        )
    return holds


def _memory_flag(config: EngineConfig) -> str:
    return "--gpu-memory-utilization" if config.kv_cache_bytes is None else "--kv-cache-memory-bytes"
