"""Paged causal attention, row by row, in fp32: the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.api import KvCache
from octavo.kernels.ref.rotary import normed, rotate

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep, QkNorm

__all__ = ["RefAttention", "RefPrepared"]


class RefAttention:
    """AttentionOps in torch. Cache layout [block, kv_head, token, dim]: a head's page is contiguous."""

    def allocate(
        self, num_blocks: int, block_tokens: int, heads: int, head_dim: int, dtype: str, device: str
    ) -> KvCache:
        shape = (num_blocks, heads, block_tokens, head_dim)
        kind: torch.dtype = getattr(torch, dtype)
        return KvCache(torch.zeros(shape, dtype=kind, device=device), torch.zeros(shape, dtype=kind, device=device))

    def prepare(self, step: PagedStep, heads: int) -> RefPrepared:
        return RefPrepared(step)


class RefPrepared:
    """PreparedAttention in torch."""

    def __init__(self, step: PagedStep) -> None:
        self._step = step
        self._blocks = step.tables[step.rows, step.positions // step.block_tokens].long()  # [T]
        self._offsets = step.positions % step.block_tokens  # [T]

    def rotate_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: KvCache, norm: QkNorm | None = None
    ) -> Tensor:  # [T, N, D], [T, K, D], [T, K, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        q, k = normed(q, k, norm)
        cache.k[self._blocks, :, self._offsets] = rotate(k, cos, sin)
        cache.v[self._blocks, :, self._offsets] = v
        return rotate(q, cos, sin)

    def attend(
        self, q: Tensor, cache: KvCache, scale: float, window: int = 0, softcap: float = 0.0
    ) -> Tensor:  # [T, N, D] dtype -> [T, N, D] dtype
        out, at = torch.empty_like(q), 0
        for row, (start, count) in enumerate(zip(self._step.starts, self._step.counts, strict=True)):
            k, v = self._read(cache.k, row, start + count), self._read(cache.v, row, start + count)
            out[at : at + count] = _attend_row(q[at : at + count], k, v, start, scale, window, softcap)
            at += count
        return out

    def _read(self, pages: Tensor, row: int, length: int) -> Tensor:  # [blocks, K, token, D] -> [length, K, D] float32
        blocks = -(-length // self._step.block_tokens)
        picked = pages[self._step.tables[row, :blocks].long()]
        return picked.transpose(1, 2).flatten(0, 1)[:length].to(torch.float32)


def _attend_row(
    q: Tensor, k: Tensor, v: Tensor, start: int, scale: float, window: int, softcap: float
) -> Tensor:  # [T, N, D] dtype, [L, K, D] float32 twice -> [T, N, D] float32
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("tnd,lnd->ntl", q.to(torch.float32), k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    positions = torch.arange(start, start + q.shape[0], device=q.device).unsqueeze(1)
    keys = torch.arange(k.shape[0], device=q.device)
    hidden = keys > positions  # [T, L]
    if window:
        hidden |= keys <= positions - window
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("ntl,lnd->tnd", weights, v)
