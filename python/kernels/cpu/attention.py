"""Paged causal attention on CPUs: pages are gathered, then torch's flash kernel runs.

Decode rows are batched by length, with the query heads of a group as its query length (they see the same keys, so there
is no mask within the group); a prefill row runs alone. Under a window only the pages that it reaches are gathered.
Scores with a softcap are computed in fp32 by plain products: torch's kernel has none. Cache layout as in `ref`: [block,
kv_head, token, dim].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional as F

from octavo.kernels.api import KvCache
from octavo.kernels.ref.rotary import normed, rotate

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep, QkNorm

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
    """Decode rows that reach about as many keys."""

    rows: Tensor | None  # [r] int64: their places among the decode rows; None: all of them, in order
    pages: Tensor  # [r * K * blocks] int64: pages of (row, head, block) in the cache seen as [block * K + head]
    count: int  # r
    length: int  # keys gathered for the row that reaches most
    mask: Tensor | None  # [r, 1, 1, length] bool, True where a key is seen; None: all are


@dataclass(frozen=True, slots=True)
class _Prefill:
    """One row with more than one token."""

    begin: int  # its first token of the step
    count: int
    pages: Tensor  # [K * blocks] int64
    length: int  # keys gathered, those of this step included
    mask: Tensor | None  # [count, length] bool; None: causal from the first token on


class CpuPrepared:
    """PreparedAttention for CPUs."""

    def __init__(self, step: PagedStep, heads: int) -> None:
        self._step = step
        self._heads = heads
        self._num_decodes = step.num_decodes
        block = step.tables[step.rows, step.positions // step.block_tokens].long()
        each = torch.arange(heads)
        places = (block.unsqueeze(1) * heads + each) * step.block_tokens
        self._places = (places + (step.positions % step.block_tokens).unsqueeze(1)).flatten()  # [T * K]
        self._cuts: dict[int, tuple[list[_Decodes], list[_Prefill]]] = {}  # by window

    def rotate_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: KvCache, norm: QkNorm | None = None
    ) -> Tensor:  # [T, N, D], [T, K, D], [T, K, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        q, k = normed(q, k, norm)
        queries = q.shape[1]
        turned = rotate(torch.cat((q, k), dim=1), cos, sin)
        dim = k.shape[-1]
        cache.k.view(-1, dim).index_copy_(0, self._places, turned[:, queries:].reshape(-1, dim))
        cache.v.view(-1, dim).index_copy_(0, self._places, v.reshape(-1, dim))
        return turned[:, :queries]

    def attend(
        self, q: Tensor, cache: KvCache, scale: float, window: int = 0, softcap: float = 0.0
    ) -> Tensor:  # [T, N, D] dtype -> [T, N, D] dtype
        if window not in self._cuts:
            step, heads = self._step, self._heads
            self._cuts[window] = (_bucket(step, heads, window), _prefills(step, heads, window))
        decodes, prefills = self._cuts[window]
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        for bucket in decodes:
            self._attend_decodes(q, cache, scale, softcap, bucket, out)
        for row in prefills:
            self._attend_prefill(q, cache, scale, softcap, row, out)
        return out

    def _attend_decodes(
        self, q: Tensor, cache: KvCache, scale: float, softcap: float, bucket: _Decodes, out: Tensor
    ) -> None:  # [T, N, D] dtype -> out [T, N, D] dtype
        heads, dim = q.shape[1:]
        picked = q[: self._num_decodes] if bucket.rows is None else q.index_select(0, bucket.rows)
        folded = picked.reshape(bucket.count, self._heads, heads // self._heads, dim)
        k = _gather(cache.k, bucket.pages, bucket.count * self._heads)[:, : bucket.length]
        v = _gather(cache.v, bucket.pages, bucket.count * self._heads)[:, : bucket.length]
        shape = (bucket.count, self._heads, bucket.length, dim)
        if softcap:
            result = _capped(folded, k.view(shape), v.view(shape), bucket.mask, scale, softcap)
        else:
            result = F.scaled_dot_product_attention(
                folded, k.view(shape), v.view(shape), attn_mask=bucket.mask, scale=scale
            )
        result = result.reshape(bucket.count, heads, dim)
        if bucket.rows is None:
            out[: self._num_decodes] = result
        else:
            out.index_copy_(0, bucket.rows, result)

    def _attend_prefill(
        self, q: Tensor, cache: KvCache, scale: float, softcap: float, row: _Prefill, out: Tensor
    ) -> None:  # [T, N, D] dtype -> out [T, N, D] dtype
        mine = slice(row.begin, row.begin + row.count)
        queries = q[mine].transpose(0, 1)  # [N, count, D]
        k = _gather(cache.k, row.pages, self._heads)[:, : row.length]
        v = _gather(cache.v, row.pages, self._heads)[:, : row.length]
        if softcap:
            mask = row.mask if row.mask is not None else torch.ones(row.count, row.length, dtype=torch.bool).tril_()
            grouped = queries.reshape(self._heads, -1, row.count, q.shape[2])
            result = _capped(grouped, k.unsqueeze(1), v.unsqueeze(1), mask, scale, softcap).flatten(0, 1)
        else:
            result = F.scaled_dot_product_attention(
                queries.unsqueeze(0),
                k.unsqueeze(0),
                v.unsqueeze(0),
                attn_mask=row.mask,
                is_causal=row.mask is None,
                scale=scale,
                enable_gqa=q.shape[1] != self._heads,
            ).squeeze(0)
        out[mine] = result.transpose(0, 1)


def _capped(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, softcap: float
) -> Tensor:  # [..., t, D], [..., L, D] dtype twice, [..., t, L] bool -> [..., t, D] dtype
    scores = torch.matmul(q.to(torch.float32), k.to(torch.float32).transpose(-1, -2)) * scale
    scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(scores.softmax(dim=-1), v.to(torch.float32)).to(q.dtype)


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


def _reach(start: int, window: int, block_tokens: int) -> tuple[int, int]:
    """Return the first key that a token at position `start` sees, and the block that holds it."""
    first = max(0, start - window + 1) if window else 0
    return first, first // block_tokens


def _bucket(step: PagedStep, heads: int, window: int) -> list[_Decodes]:
    """Group the decode rows so that no row is padded to more than twice its blocks."""
    groups: dict[int, list[int]] = {}
    for row in range(step.num_decodes):
        blocks = step.starts[row] // step.block_tokens - _reach(step.starts[row], window, step.block_tokens)[1]
        groups.setdefault(blocks.bit_length(), []).append(row)
    return [_one_bucket(step, heads, window, rows, len(groups) == 1) for rows in groups.values()]


def _one_bucket(step: PagedStep, heads: int, window: int, rows: list[int], whole: bool) -> _Decodes:
    tokens = step.block_tokens
    reach = [_reach(step.starts[row], window, tokens) for row in rows]
    blocks = [block for _, block in reach]  # the first gathered of each row
    low = [first - block * tokens for first, block in reach]  # keys from here on are seen, of those gathered,
    high = [step.starts[row] + 1 - block * tokens for row, block in zip(rows, blocks, strict=True)]  # up to here
    longest = max(high)
    width = -(-longest // tokens)
    index = torch.tensor(rows)
    tables = step.tables[: step.num_decodes] if whole else step.tables.index_select(0, index)
    if any(blocks):
        columns = torch.tensor(blocks).unsqueeze(1) + torch.arange(width)
        tables = tables.gather(1, columns.clamp_(max=tables.shape[1] - 1))
    mask = None
    if min(high) != longest or any(low):
        at = torch.arange(longest)
        mask = (at >= torch.tensor(low).unsqueeze(1)) & (at < torch.tensor(high).unsqueeze(1))
        mask = mask.view(-1, 1, 1, longest)
        # Entries of a table behind the row's own are leftovers: read the null block there.
        used = -(-torch.tensor(high) // tokens).unsqueeze(1)
        tables = tables.where(torch.arange(tables.shape[1]) < used, tables.new_zeros(()))
    return _Decodes(None if whole else index, _pages(tables[:, :width], heads), len(rows), longest, mask)


def _prefills(step: PagedStep, heads: int, window: int) -> list[_Prefill]:
    rows, begin = [], step.num_decodes
    for row in range(step.num_decodes, len(step.counts)):
        start, count = step.starts[row], step.counts[row]
        block = _reach(start, window, step.block_tokens)[1]
        skipped = block * step.block_tokens
        length = start + count - skipped
        pages = _pages(step.tables[row : row + 1, block : -(-(start + count) // step.block_tokens)], heads)
        mask = None
        if start or (window and length > window):
            mask = torch.ones(count, length, dtype=torch.bool).tril_(diagonal=start - skipped)
            if window:
                mask = mask.triu_(diagonal=start - skipped - window + 1)
        rows.append(_Prefill(begin, count, pages, length, mask))
        begin += count
    return rows
