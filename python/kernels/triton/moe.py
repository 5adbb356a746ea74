"""Experts as one grouped matrix product each way: torch's, because cuBLAS and CUTLASS leave little to win.

Nothing waits for the device, so that a decode step can be recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from octavo.kernels.triton.activation import TritonActivation

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GroupedMoe"]


class GroupedMoe:
    """MoeOps of a CUDA device: tokens are sorted by expert."""

    def __init__(self) -> None:
        self._activation = TritonActivation()

    def apply(
        self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:  # [T, H] dtype, [T, k] int64, [T, k] float32, [E, 2I, H], [E, H, I] dtype -> [T, H] dtype
        if x.dtype == torch.float32:
            return self._every_expert(x, experts, shares, gate_up, down)
        count, taken = experts.shape
        order = experts.flatten().argsort(stable=True)  # [T * k] choices, grouped by expert
        each = torch.arange(gate_up.shape[0], device=x.device)
        ends = torch.searchsorted(experts.flatten()[order], each, right=True).to(torch.int32)
        hidden = self._activation.silu_mul(_grouped(x[order // taken], gate_up, ends))
        sorted_out = _grouped(hidden, down, ends)
        out = torch.empty_like(sorted_out).index_copy_(0, order, sorted_out).view(count, taken, -1)
        return (out.to(torch.float32) * shares.unsqueeze(-1)).sum(dim=1).to(x.dtype)

    def _every_expert(
        self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:  # as in `apply`
        """Compute all experts for all tokens: in float32 torch groups products on the host, which no recording can."""
        out = torch.zeros_like(x)
        for expert in range(gate_up.shape[0]):
            share = torch.where(experts == expert, shares, 0.0).sum(dim=1, keepdim=True)  # [T, 1]
            product = self._activation.silu_mul(x @ gate_up[expert].T) @ down[expert].T
            out += torch.where(share > 0, product * share, 0.0)
        return out


def _grouped(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:  # [n, in], [E, out, in] dtype, [E] int32 -> [n, out]
    return F.grouped_mm(x, weights.transpose(1, 2), offs=ends)
