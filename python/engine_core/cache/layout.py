"""From the layers' specs to KV groups, their sizes, and the context they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from octavo.engine_core.cache.block_pool import BlockPool
from octavo.engine_core.cache.coordinator import KvCache
from octavo.engine_core.cache.group_full import FullGroup
from octavo.engine_core.cache.group_state import StateGroup
from octavo.engine_core.cache.group_window import WindowGroup
from octavo.engine_core.cache.prefix_index import PrefixIndex
from octavo.errors import ConfigError, ProtocolError
from octavo.wire.worker import KvGroupAlloc

if TYPE_CHECKING:
    from octavo.engine_core.cache.domain import Base
    from octavo.engine_core.cache.events import KvEventLog
    from octavo.engine_core.cache.group import Flight, GroupManager
    from octavo.wire.worker import KvSpec

__all__ = ["KvGroup", "block_tokens_by_kind", "build_cache", "group_layers", "longest_context", "size_groups"]

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "uint8": 1, "int8": 1, "int32": 4}
_BLOCK_KINDS = ("full", "window", "state")

#: A state is large and one is kept at most for each block: so its blocks span more tokens than those of attention.
_STATE_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that share block ids."""

    group: int
    kind: str
    window: int  # tokens; 0 unless kind is "window"
    block_tokens: int
    page_bytes: int  # of one block, all layers, on one rank
    layers: tuple[int, ...]  # those with tensors of their own, ascending

    def alloc(self, num_blocks: int) -> KvGroupAlloc:
        """Return what the workers are told of this group."""
        return KvGroupAlloc(self.group, self.block_tokens, num_blocks, self.layers)


def block_tokens_by_kind(block_size: int) -> dict[str, int]:
    """Return the tokens a block for each kind of group."""
    return {"full": block_size, "window": block_size, "state": block_size * _STATE_BLOCKS}


def group_layers(specs: Sequence[KvSpec], block_tokens: Mapping[str, int]) -> tuple[KvGroup, ...]:
    """Return the groups of a model's layers: those equal in kind, window and tensors, in order of the first layer.

    Layers that share another layer's cache own nothing and belong to no group. Raises ProtocolError for kinds and
    dtypes that are not known.
    """
    members: dict[tuple[object, ...], list[KvSpec]] = {}
    for spec in sorted(specs, key=lambda spec: spec.layer):
        if spec.kind not in _BLOCK_KINDS:
            raise ProtocolError(
                f"layer {spec.layer} has the KV kind {spec.kind!r}; known are {', '.join(_BLOCK_KINDS)}"
            )
        if spec.shares is None:
            members.setdefault((spec.kind, spec.window, spec.tensors), []).append(spec)
    groups = []
    for number, layers in enumerate(members.values()):
        kind, tokens = layers[0].kind, block_tokens[layers[0].kind]
        one = _spec_bytes(layers[0]) * (1 if kind == "state" else tokens)
        ids = tuple(spec.layer for spec in layers)
        groups.append(KvGroup(number, kind, layers[0].window, tokens, one * len(layers), ids))
    return tuple(groups)


def size_groups(groups: Sequence[KvGroup], kv_cache_bytes: int, max_num_seqs: int, flight: Flight) -> tuple[int, ...]:
    """Return the number of blocks of each group, the null block included, that fill `kv_cache_bytes` on one rank.

    Window and state groups get what `max_num_seqs` requests need, but at most half of the memory where there are full
    groups, and the full groups share the rest so that all hold the same number of tokens. Raises ConfigError if some
    group would get no block.
    """
    wanted = {g.group: _blocks_wanted(g, max_num_seqs, flight) for g in groups if g.kind != "full"}
    full = [g for g in groups if g.kind == "full"]
    wanted_bytes = sum(g.page_bytes * wanted[g.group] for g in groups if g.kind != "full")
    share = kv_cache_bytes // 2 if full else kv_cache_bytes
    scale = share / max(wanted_bytes, 1)
    blocks = {number: int(count * (min(1.0, scale) if full else scale)) for number, count in wanted.items()}
    rest = kv_cache_bytes - sum(g.page_bytes * blocks[g.group] for g in groups if g.kind != "full")
    per_token = sum(g.page_bytes / g.block_tokens for g in full)
    for g in full:
        blocks[g.group] = int(rest / per_token) // g.block_tokens
    sizes = tuple(blocks[g.group] for g in groups)
    for g, size in zip(groups, sizes, strict=True):
        if size < 2:
            need = 2 * sum(g.page_bytes for g in groups)
            raise ConfigError(
                f"--kv-cache-memory-bytes {kv_cache_bytes} holds {size} blocks of {g.page_bytes} bytes for the"
                f" {g.kind} layers; at least {need} bytes are needed: raise it, or lower --block-size",
                "kv-cache-memory-bytes",
            )
    return sizes


def build_cache(
    groups: Sequence[KvGroup],
    num_blocks: Sequence[int],
    flight: Flight,
    base: Base | None,
    log: KvEventLog | None = None,
) -> KvCache:
    """Return an empty cache. `base` None switches prefix caching off; `log` hears what can be found in it."""
    index = PrefixIndex()
    managers: list[GroupManager] = []
    for group, size in zip(groups, num_blocks, strict=True):
        pool = BlockPool(group.group, size, index, log)
        if group.kind == "full":
            managers.append(FullGroup(pool, group.block_tokens))
        elif group.kind == "window":
            managers.append(WindowGroup(pool, group.block_tokens, group.window, flight))
        else:
            managers.append(StateGroup(pool, group.block_tokens, flight, checkpoints=base is not None))
    return KvCache(managers, index, base, log)


def longest_context(cache: KvCache, context: int) -> int:
    """Return the most tokens, at most `context`, of a request that the pools hold when it is alone."""
    for group in cache.groups:
        if group.resident_blocks(context) > group.pool.capacity:
            context = min(context, group.pool.capacity * group.block_tokens)
    return context


def _blocks_wanted(group: KvGroup, max_num_seqs: int, flight: Flight) -> int:
    """Return the blocks of chunks and of long requests in decode, one more each to be cached, and the null block."""
    if group.kind == "window":
        chunks = -(-flight.tokens // group.block_tokens)
        reach = group.window - 1 + flight.decode_tokens
    else:
        chunks = 2 * flight.plans
        reach = flight.decode_tokens
    return 1 + chunks + max_num_seqs * (-(-reach // group.block_tokens) + 3)


def _spec_bytes(spec: KvSpec) -> int:
    total = 0
    for tensor in spec.tensors:
        if tensor.dtype not in _DTYPE_BYTES:
            raise ProtocolError(
                f"layer {spec.layer} has a KV tensor of dtype {tensor.dtype!r}, which has no known size"
            )
        total += prod(tensor.shape) * _DTYPE_BYTES[tensor.dtype]
    return total
