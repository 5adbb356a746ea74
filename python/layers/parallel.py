"""The ranks that share a layer's work, and how work is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import distributed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Group", "RankGroup", "SingleGroup", "kv_heads_of", "query_heads_of", "share"]


class Group(Protocol):
    """Ranks that compute one model together (tensor parallel)."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor) -> Tensor:  # any shape -> the same
        """Return the sum over ranks, the same bits on each. `x` may be overwritten."""
        ...

    def all_gather(self, x: Tensor) -> Tensor:  # [R, n] -> [R, n * size]
        """Return the ranks' tensors, of equal shapes, side by side in the order of ranks."""
        ...


class SingleGroup:
    """One rank alone."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor) -> Tensor:  # any shape -> the same
        return x

    def all_gather(self, x: Tensor) -> Tensor:  # [R, n] -> [R, n * size]
        return x


class RankGroup:
    """Ranks joined by torch.distributed's default process group."""

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()

    def all_reduce(self, x: Tensor) -> Tensor:  # any shape -> the same
        distributed.all_reduce(x)
        return x

    def all_gather(self, x: Tensor) -> Tensor:  # [R, n] -> [R, n * size]
        if not x.is_cuda:
            parts = [torch.empty_like(x) for _ in range(self.size)]
            distributed.all_gather(parts, x.contiguous())
            return torch.cat(parts, dim=-1)
        whole = x.new_empty(self.size, *x.shape)
        distributed.all_gather_into_tensor(whole.view(-1, x.shape[1]), x.contiguous())
        return whole.transpose(0, 1).reshape(x.shape[0], -1)


def share(total: int, rank: int, size: int) -> range:
    """Return the units, of `total`, that `rank` holds: consecutive, and as even as can be."""
    return range(rank * total // size, (rank + 1) * total // size)


def kv_heads_of(kv_heads: int, rank: int, size: int) -> range:
    """Return the key-value heads of `rank`. With fewer heads than ranks, several ranks hold the same one."""
    if kv_heads >= size:
        return share(kv_heads, rank, size)
    head = rank * kv_heads // size
    return range(head, head + 1)


def query_heads_of(heads: int, kv_heads: int, rank: int, size: int) -> range:
    """Return the query heads of `rank`: those of its key-value heads, or its part of them where ranks share one."""
    group = heads // kv_heads
    mine = kv_heads_of(kv_heads, rank, size)
    if kv_heads >= size:
        return range(mine.start * group, mine.stop * group)
    holders = [other for other in range(size) if kv_heads_of(kv_heads, other, size) == mine]
    part = share(group, holders.index(rank), len(holders))
    return range(mine.start * group + part.start, mine.start * group + part.stop)
