"""Grouped-query self-attention with a rotary embedding, its heads shared among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.parallel import kv_heads_of, query_heads_of

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch

__all__ = ["AttentionSizes", "SelfAttention"]


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Of one attention layer, over all ranks."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool


class SelfAttention(Layer):
    """q, k, v; rotation; cache; attention; output."""

    def __init__(self, layer: int, sizes: AttentionSizes, build: Build) -> None:
        group, dim = build.group, sizes.head_dim
        heads = query_heads_of(sizes.heads, sizes.kv_heads, group.rank, group.size)
        kv_heads = kv_heads_of(sizes.kv_heads, group.rank, group.size)
        self._layer = layer
        self._dim = dim
        self._widths = [len(heads) * dim, len(kv_heads) * dim, len(kv_heads) * dim]
        mine, kv = _columns(heads, dim), (sizes.kv_heads * dim, _columns(kv_heads, dim))
        outputs = {"q": (sizes.heads * dim, mine), "k": kv, "v": kv}
        self.qkv = ColumnLinear(sizes.hidden, outputs, sizes.bias, build)
        self.out = RowLinear(sizes.heads * dim, mine, sizes.hidden, sizes.bias, build)

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> Tensor:  # [T, hidden], [T, D], [T, D] dtype -> [T, hidden] dtype
        q, k, v = (part.view(x.shape[0], -1, self._dim) for part in torch.split(self.qkv(x), self._widths, dim=-1))
        cache, attention = batch.caches[self._layer], batch.attention[self._layer]
        q = attention.rotate_and_write(q, k, v, cos, sin, cache)
        return self.out(attention.attend(q, cache, self._dim**-0.5).flatten(1))


def _columns(heads: range, dim: int) -> range:
    return range(heads.start * dim, heads.stop * dim)
