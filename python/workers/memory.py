"""Memory of the device: what is free, and the KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from octavo.errors import ProtocolError

if TYPE_CHECKING:
    from octavo.kernels.api import AttentionOps, KvCache
    from octavo.models.base import Model
    from octavo.wire.worker import KvGroupAlloc

__all__ = ["allocate_caches", "cache_bytes", "device_free_bytes", "free_bytes"]


def allocate_caches(
    groups: tuple[KvGroupAlloc, ...], model: Model, ops: AttentionOps, device: str
) -> tuple[KvCache, ...]:
    """Return each layer's cache, zero-filled, in the order of layers.

    Raises ProtocolError if a layer is in no group, or of a kind that no attention here computes.
    """
    alloc = {layer: group for group in groups for layer in group.layers}
    caches = []
    for spec in model.kv_specs():
        group = alloc.get(spec.layer)
        if group is None or spec.kind not in ("full", "window") or spec.shares is not None:
            raise ProtocolError(f"layer {spec.layer} of kind {spec.kind!r} has no KV group that it can run with")
        heads, kept = model.kv_heads(spec.layer), spec.tensors[0]
        dim = kept.shape[-1]
        caches.append(ops.allocate(group.num_blocks, group.block_tokens, heads, dim, kept.dtype, device))
    return tuple(caches)


def cache_bytes(caches: tuple[KvCache, ...]) -> int:
    """Return the size of the caches."""
    return sum(cache.k.nbytes + cache.v.nbytes for cache in caches)


def device_free_bytes(device: str) -> int:
    """Return the memory that a worker on `device` could still allocate; 0 where the system does not say."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return free_bytes()


def free_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of a CPU worker that is free: the machine's, or what its control group still allows.

    0 where the system does not say.
    """
    free = 0
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        limit = (cgroup / "memory.max").read_text().strip()
        if limit.isdigit():
            free = min(free, max(0, int(limit) - int((cgroup / "memory.current").read_text())))
    except (OSError, ValueError, IndexError):
        return free
    return free
