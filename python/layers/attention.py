"""Grouped-query self-attention with a rotary embedding, its heads shared among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer
from octavo.layers.full_norm import FullNorms
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.norm import HeadNorms
from octavo.layers.parallel import kv_heads_of, query_heads_of
from octavo.layers.rope import head_order

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch
    from octavo.layers.rope_config import RopeConfig

__all__ = ["AttentionSizes", "Scoring", "SelfAttention"]


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Of one attention layer, over all ranks."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False  # of queries, keys, values
    out_bias: bool = False


@dataclass(frozen=True, slots=True)
class Scoring:
    """How queries score keys: see PreparedAttention.attend."""

    scale: float
    window: int = 0
    softcap: float = 0.0


class SelfAttention(Layer):
    """q, k, v; norms, where `norms` has them; rotation; cache; attention; output."""

    def __init__(
        self,
        layer: int,
        sizes: AttentionSizes,
        scoring: Scoring,
        rope: RopeConfig,
        build: Build,
        norms: HeadNorms | FullNorms | None = None,
    ) -> None:
        group, dim = build.group, sizes.head_dim
        heads = query_heads_of(sizes.heads, sizes.kv_heads, group.rank, group.size)
        kv_heads = kv_heads_of(sizes.kv_heads, group.rank, group.size)
        self._layer = layer
        self._dim = dim
        self._scoring = scoring
        self._widths = [len(heads) * dim, len(kv_heads) * dim, len(kv_heads) * dim]
        mine, kv = _columns(heads, dim), (sizes.kv_heads * dim, _columns(kv_heads, dim))
        outputs = {"q": (sizes.heads * dim, mine), "k": kv, "v": kv}
        order = head_order(rope)
        orders = {} if order is None else {"q": order, "k": order}
        self.qkv = ColumnLinear(sizes.hidden, outputs, sizes.bias, build, orders)
        self.norms = norms
        self.out = RowLinear(sizes.heads * dim, mine, sizes.hidden, sizes.out_bias, build)

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, batch: ForwardBatch, onto: Tensor | None = None
    ) -> Tensor:  # [T, hidden], [T, D], [T, D], [W, hidden] dtype -> [W, hidden] dtype
        """Return the attention of the tokens that go on, or its sum with `onto`: see RowLinear."""
        q, k, v = torch.split(self.qkv(x), self._widths, dim=-1)
        if isinstance(self.norms, FullNorms):
            q, k = self.norms(q, k)
        q, k, v = (part.view(x.shape[0], -1, self._dim) for part in (q, k, v))
        cache, attention = batch.caches[self._layer], batch.attention[self._layer]
        norm = self.norms.norm if isinstance(self.norms, HeadNorms) else None
        q = attention.rotate_and_write(q, k, v, cos, sin, cache, norm)
        scoring = self._scoring
        if batch.ending is not None:
            q, attention = batch.going_on(q), batch.ending.attention
        return self.out(attention.attend(q, cache, scoring.scale, scoring.window, scoring.softcap).flatten(1), onto)


def _columns(heads: range, dim: int) -> range:
    return range(heads.start * dim, heads.stop * dim)
