"""Self-attention of encoders: rows stand whole in a step, and tokens see those that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.layers.base import Layer
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.parallel import share

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.attention import AttentionSizes
    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch

__all__ = ["RowAttention"]


class RowAttention(Layer):
    """q, k, v; rotation, where there is one; attention; output. Heads are shared among ranks."""

    def __init__(self, sizes: AttentionSizes, build: Build, reach: int = 0) -> None:
        """`reach`: how far a token sees to either side; 0: all of its row. As many key-value heads as heads."""
        dim = sizes.head_dim
        heads = share(sizes.heads, build.group.rank, build.group.size)
        mine, total = range(heads.start * dim, heads.stop * dim), sizes.heads * dim
        self._ops = build.kernels.rows
        self._dim, self._reach = dim, reach
        self.qkv = ColumnLinear(sizes.hidden, dict.fromkeys("qkv", (total, mine)), sizes.bias, build)
        self.out = RowLinear(total, mine, sizes.hidden, sizes.out_bias, build)

    def __call__(
        self, x: Tensor, batch: ForwardBatch, turn: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:  # [T, hidden] dtype, [T, D] dtype twice -> [T, hidden] dtype
        """Return the attention of all tokens. `turn`: cosines and sines of their positions."""
        q, k, v = self.qkv(x).view(x.shape[0], 3, -1, self._dim).unbind(1)
        if turn is not None:
            q, k = self._ops.rotate(q, *turn), self._ops.rotate(k, *turn)
        attended = self._ops.attend(q, k, v, batch.counts, self._dim**-0.5, self._reach)
        return self.out(attended.flatten(1))
