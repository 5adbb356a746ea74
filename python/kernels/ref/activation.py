"""Elementwise functions in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefActivation"]


class RefActivation:
    """ActivationOps in torch."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def gelu_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up

    def gelu(self, x: Tensor) -> Tensor:  # [T, I] dtype -> [T, I] dtype
        return F.gelu(x, approximate="tanh")

    def gelu_erf(self, x: Tensor) -> Tensor:  # [T, I] dtype -> [T, I] dtype
        return F.gelu(x)

    def gelu_erf_mul(self, gate_up: Tensor) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate) * up
