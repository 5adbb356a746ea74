"""RMS norms over all heads of queries, and of keys, which several ranks share (OLMo 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart
from octavo.layers.parallel import kv_heads_of, query_heads_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.attention import AttentionSizes
    from octavo.layers.base import Build, TensorSource

__all__ = ["FullNorms"]


class FullNorms(Layer):
    """Norms whose mean runs over the heads of every rank: ranks add up their sums of squares."""

    def __init__(self, sizes: AttentionSizes, eps: float, build: Build) -> None:
        dim, group = sizes.head_dim, build.group
        heads = query_heads_of(sizes.heads, sizes.kv_heads, group.rank, group.size)
        kv_heads = kv_heads_of(sizes.kv_heads, group.rank, group.size)
        self._group = group
        self._dtype = build.dtype
        self._eps = eps
        self._totals = (sizes.heads * dim, sizes.kv_heads * dim)
        self._mine = tuple(range(part.start * dim, part.stop * dim) for part in (heads, kv_heads))
        self._weights = tuple(
            torch.ones(len(mine), dtype=torch.float32, device=build.device) for mine in self._mine
        )  # [this rank's part] float32: of queries, of keys
        # Where ranks hold the same key-value head, each brings its part of the sum.
        holders = sum(kv_heads_of(sizes.kv_heads, rank, group.size) == kv_heads for rank in range(group.size))
        self._share = torch.tensor(
            [1.0 / self._totals[0], 1.0 / (self._totals[1] * holders)], dtype=torch.float32, device=build.device
        )  # [2] float32

    def parts(self) -> dict[str, WeightPart]:
        return {
            f"{name}.weight": WeightPart((self._totals[at],), self._loader(at), "ones")
            for at, name in enumerate(("q", "k"))
        }

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, FullNorms)
        for mine, theirs in zip(self._weights, other._weights, strict=True):
            mine.copy_(theirs)

    def own_bytes(self) -> int:
        return sum(weight.nbytes for weight in self._weights)

    def __call__(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:  # [T, N * D], [T, K * D] dtype -> the same
        wide = (q.to(torch.float32), k.to(torch.float32))
        squares = torch.stack([part.square().sum(-1) for part in wide], dim=-1)  # [T, 2] float32
        scale = torch.rsqrt(self._group.all_reduce(squares * self._share) + self._eps)
        normed = [part * scale[:, at : at + 1] * self._weights[at] for at, part in enumerate(wide)]
        return normed[0].to(q.dtype), normed[1].to(k.dtype)

    def _loader(self, at: int) -> Callable[[TensorSource], None]:
        def load(source: TensorSource) -> None:
            mine = self._mine[at]
            self._weights[at].copy_(source.read(slice(mine.start, mine.stop)).to(self._dtype))  # as every weight

        return load
