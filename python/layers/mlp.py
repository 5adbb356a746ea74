"""Feed-forward layers, their intermediate size shared among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.layers.base import Layer
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.parallel import share

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build

__all__ = ["GatedMlp", "PlainMlp"]


class GatedMlp(Layer):
    """down(act(gate(x)) * up(x)); `activation` is "silu", "gelu" (its tanh form) or "gelu_erf"."""

    def __init__(self, hidden: int, intermediate: int, bias: bool, build: Build, activation: str = "silu") -> None:
        mine = share(intermediate, build.group.rank, build.group.size)
        ops = build.kernels.activation
        self._act = {"silu": ops.silu_mul, "gelu": ops.gelu_mul, "gelu_erf": ops.gelu_erf_mul}[activation]
        self.gate_up = ColumnLinear(hidden, {"gate": (intermediate, mine), "up": (intermediate, mine)}, bias, build)
        self.down = RowLinear(intermediate, mine, hidden, bias, build)

    def __call__(self, x: Tensor, onto: Tensor | None = None) -> Tensor:  # [T, hidden] dtype, twice -> the same
        """Return the output, or its sum with `onto`: see RowLinear."""
        return self.down(self._act(self.gate_up(x)), onto)


class PlainMlp(Layer):
    """down(act(up(x))); `activation` is "gelu" (its tanh form) or "gelu_erf"."""

    def __init__(self, hidden: int, intermediate: int, bias: bool, build: Build, activation: str = "gelu") -> None:
        mine = share(intermediate, build.group.rank, build.group.size)
        ops = build.kernels.activation
        self._act = {"gelu": ops.gelu, "gelu_erf": ops.gelu_erf}[activation]
        self.up = ColumnLinear(hidden, {"up": (intermediate, mine)}, bias, build)
        self.down = RowLinear(intermediate, mine, hidden, bias, build)

    def __call__(self, x: Tensor) -> Tensor:  # [T, hidden] dtype -> [T, hidden] dtype
        return self.down(self._act(self.up(x)))
