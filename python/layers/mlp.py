"""The gated feed-forward layer, its intermediate size shared among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.layers.base import Layer
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.parallel import share

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build

__all__ = ["GatedMlp"]


class GatedMlp(Layer):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden: int, intermediate: int, bias: bool, build: Build) -> None:
        mine = share(intermediate, build.group.rank, build.group.size)
        self._ops = build.kernels.activation
        self.gate_up = ColumnLinear(hidden, {"gate": (intermediate, mine), "up": (intermediate, mine)}, bias, build)
        self.down = RowLinear(intermediate, mine, hidden, bias, build)

    def __call__(self, x: Tensor) -> Tensor:  # [T, hidden] dtype -> [T, hidden] dtype
        return self.down(self._ops.silu_mul(self.gate_up(x)))
