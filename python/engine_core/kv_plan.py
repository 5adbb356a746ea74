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
from octavo.errors import ConfigError
from octavo.wire.worker import AllocateKv

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.engine_core.cache.coordinator import KvCache
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


def plan_kv(config: EngineConfig, ready: Ready, window: int, num_drafts: int) -> KvPlan:
    """Divide `config.kv_cache_bytes` of each rank among the groups of the layers that `ready` names.

    Raises ConfigError if there is not so much memory, or if the pools hold less than --max-model-len.
    """
    if 0 < ready.free_bytes < config.kv_cache_bytes:
        raise ConfigError(
            f"--kv-cache-memory-bytes {config.kv_cache_bytes} is more than the {ready.free_bytes} bytes that are free"
            " after loading the weights; lower it",
            "kv-cache-memory-bytes",
        )
    groups = group_layers(ready.kv_specs, block_tokens_by_kind(config.block_size))
    flight = Flight(window, window * config.max_num_batched_tokens, window * (1 + num_drafts))
    sizes = size_groups(groups, config.kv_cache_bytes, config.max_num_seqs, flight)
    base = Base(config.model, config.dtype) if config.enable_prefix_caching else None
    cache = build_cache(groups, sizes, flight, base)
    main = next((number for number, group in enumerate(groups) if group.kind == "full"), 0)
    return KvPlan(
        cache=cache,
        allocate=AllocateKv(tuple(group.alloc(size) for group, size in zip(groups, sizes, strict=True))),
        max_model_len=_max_model_len(config, cache),
        num_blocks=sizes[main] - 1,
        block_tokens=groups[main].block_tokens,
        chunk_align=max((group.block_tokens for group in groups if group.kind == "state"), default=1),
    )


def _max_model_len(config: EngineConfig, cache: KvCache) -> int:
    """Return the context: what was asked for if the pools hold it, or what they hold of the model's."""
    wanted = config.max_model_len if config.max_model_len is not None else config.model_context_len
    holds = longest_context(cache, wanted)
    if config.max_model_len is not None and holds < wanted:
        raise ConfigError(
            f"--max-model-len {wanted} is larger than the KV pool: {config.kv_cache_bytes} bytes hold {holds} tokens;"
            f" raise --kv-cache-memory-bytes, or lower --max-model-len to {holds} or to auto",
            "max-model-len",
        )
    if holds < 2:
        raise ConfigError(
            f"--kv-cache-memory-bytes {config.kv_cache_bytes} holds {holds} tokens; raise it", "kv-cache-memory-bytes"
        )
    return holds
