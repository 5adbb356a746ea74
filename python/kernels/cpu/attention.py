"""Paged causal attention on CPUs: pages are gathered, then torch's flash kernel runs.

Decode rows are batched by length, with the query heads of a group as its query length (they see the same keys, so there
is no mask within the group); a prefill row runs alone. Cache layout as in `ref`: [block, kv_head, token, dim].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from octavo.kernels.api import KvCache
from octavo.kernels.ref.rotary import rotate

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep

__all__ = ["CpuAttention", "CpuPrepared"]


class CpuAttention:
    """AttentionOps for CPUs."""

    def allocate(
        self, num_blocks: int, block_tokens: int, heads: int, head_dim: int, dtype: str, device: str
    ) -> KvCache:
        shape, kind = (num_blocks, heads, block_tokens, head_dim), getattr(torch, dtype)
        return KvCache(_zeros(shape, kind), _zeros(shape, kind))

    def prepare(self, step: PagedStep, heads: int) -> CpuPrepared:
        return CpuPrepared(step, heads)


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Decode rows of like length."""

    rows: Tensor | None  # [r] int64: their places among the decode rows; None: all of them, in order
    pages: Tensor  # [r * K * blocks] int64: pages of (row, head, block) in the cache seen as [block * K + head]
    count: int  # r
    length: int  # tokens of the longest
    mask: Tensor | None  # [r, 1, 1, length] bool, True where a key is seen; None: all are


@dataclass(frozen=True, slots=True)
class _Prefill:
    """One row with more than one token."""

    begin: int  # its first token of the step
    count: int
    pages: Tensor  # [K * blocks] int64
    length: int  # tokens, those of this step included
    mask: Tensor | None  # [count, length] bool; None: causal from the first token on


class CpuPrepared:
    """PreparedAttention for CPUs."""

    def __init__(self, step: PagedStep, heads: int) -> None:
        self._heads = heads
        self._num_decodes = step.num_decodes
        block = step.tables[step.rows, step.positions // step.block_tokens].long()
        each = torch.arange(heads)
        places = (block.unsqueeze(1) * heads + each) * step.block_tokens
        self._places = (places + (step.positions % step.block_tokens).unsqueeze(1)).flatten()  # [T * K]
        self._decodes = _bucket(step, heads)
        self._prefills = _prefills(step, heads)

    def rotate_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: KvCache
    ) -> Tensor:  # [T, N, D], [T, K, D], [T, K, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        queries = q.shape[1]
        turned = rotate(torch.cat((q, k), dim=1), cos, sin)
        dim = k.shape[-1]
        cache.k.view(-1, dim).index_copy_(0, self._places, turned[:, queries:].reshape(-1, dim))
        cache.v.view(-1, dim).index_copy_(0, self._places, v.reshape(-1, dim))
        return turned[:, :queries]

    def attend(self, q: Tensor, cache: KvCache, scale: float) -> Tensor:  # [T, N, D] dtype -> [T, N, D] dtype
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for bucket in self._decodes:
            self._attend_decodes(q, cache, scale, bucket, out)
        for row in self._prefills:
            self._attend_prefill(q, cache, scale, row, out)
        return out

    def _attend_decodes(
        self, q: Tensor, cache: KvCache, scale: float, bucket: _Decodes, out: Tensor
    ) -> None:  # [T, N, D] dtype -> out [T, N, D] dtype
        heads, dim = q.shape[1:]
        picked = q[: self._num_decodes] if bucket.rows is None else q.index_select(0, bucket.rows)
        folded = picked.reshape(bucket.count, self._heads, heads // self._heads, dim)
        k = _gather(cache.k, bucket.pages, bucket.count * self._heads)[:, : bucket.length]
        v = _gather(cache.v, bucket.pages, bucket.count * self._heads)[:, : bucket.length]
        shape = (bucket.count, self._heads, bucket.length, dim)
        result = F.scaled_dot_product_attention(
            folded, k.view(shape), v.view(shape), attn_mask=bucket.mask, scale=scale
        ).reshape(bucket.count, heads, dim)
        if bucket.rows is None:
            out[: self._num_decodes] = result
        else:
            out.index_copy_(0, bucket.rows, result)

    def _attend_prefill(
        self, q: Tensor, cache: KvCache, scale: float, row: _Prefill, out: Tensor
    ) -> None:  # [T, N, D] dtype -> out [T, N, D] dtype
        mine = slice(row.begin, row.begin + row.count)
        result = F.scaled_dot_product_attention(
            q[mine].transpose(0, 1).unsqueeze(0),
            _gather(cache.k, row.pages, self._heads)[:, : row.length].unsqueeze(0),
            _gather(cache.v, row.pages, self._heads)[:, : row.length].unsqueeze(0),
            attn_mask=row.mask,
            is_causal=row.mask is None,
            scale=scale,
            enable_gqa=q.shape[1] != self._heads,
        )
        out[mine] = result.squeeze(0).transpose(0, 1)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return zeros that take no memory and no time before they are written: pages come from calloc.

    torch.zeros writes all of them, which takes seconds for a cache of gigabytes.
    """
    return torch.from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)).view(dtype).view(shape)


def _gather(
    pages: Tensor, index: Tensor, rows: int
) -> Tensor:  # [block, K, token, D] dtype, [rows * blocks] int64 -> [rows, blocks * token, D] dtype
    dim = pages.shape[-1]
    return pages.flatten(0, 1).index_select(0, index).view(rows, -1, dim)


def _pages(tables: Tensor, heads: int) -> Tensor:  # [r, blocks] int32 -> [r * heads * blocks] int64
    return (tables.long().unsqueeze(1) * heads + torch.arange(heads).unsqueeze(1)).flatten()


def _bucket(step: PagedStep, heads: int) -> list[_Decodes]:
    """Group the decode rows so that no row is padded to more than twice its blocks."""
    groups: dict[int, list[int]] = {}
    for row in range(step.num_decodes):
        blocks = step.starts[row] // step.block_tokens + 1
        groups.setdefault((blocks - 1).bit_length(), []).append(row)
    buckets = []
    for rows in groups.values():
        lengths = [step.starts[row] + 1 for row in rows]
        longest = max(lengths)
        whole = len(groups) == 1
        index = torch.tensor(rows)
        tables = step.tables[: step.num_decodes] if whole else step.tables.index_select(0, index)
        mask = None
        if min(lengths) != longest:
            mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).view(-1, 1, 1, longest)
            # Entries of a table behind the row's own are leftovers: read the null block there.
            used = -(-torch.tensor(lengths) // step.block_tokens).unsqueeze(1)
            tables = tables.where(torch.arange(tables.shape[1]) < used, tables.new_zeros(()))
        blocks = -(-longest // step.block_tokens)
        pages = _pages(tables[:, :blocks], heads)
        buckets.append(_Decodes(None if whole else index, pages, len(rows), longest, mask))
    return buckets


def _prefills(step: PagedStep, heads: int) -> list[_Prefill]:
    rows, begin = [], step.num_decodes
    for row in range(step.num_decodes, len(step.counts)):
        start, count = step.starts[row], step.counts[row]
        length = start + count
        pages = _pages(step.tables[row : row + 1, : -(-length // step.block_tokens)], heads)
        mask = None
        if start:
            mask = torch.ones(count, length, dtype=torch.bool).tril_(diagonal=start)
        rows.append(_Prefill(begin, count, pages, length, mask))
        begin += count
    return rows
