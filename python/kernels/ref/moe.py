"""Experts one after the other: each computes the tokens that chose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefMoe"]


class RefMoe:
    """MoeOps in torch. It waits for the device: the number of tokens of each expert is needed on the host."""

    def apply(
        self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor
    ) -> Tensor:  # [T, H] dtype, [T, k] int64, [T, k] float32, [E, 2I, H], [E, H, I] dtype -> [T, H] dtype
        taken = experts.shape[1]
        order = experts.flatten().argsort(stable=True)  # [T * k] choices, grouped by expert
        tokens = order // taken
        counts = torch.bincount(experts.flatten(), minlength=gate_up.shape[0]).tolist()
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        share = shares.flatten()[order].unsqueeze(1)
        begin = 0
        for expert, count in enumerate(counts):
            if count:
                mine = tokens[begin : begin + count]
                gate, up = F.linear(x[mine], gate_up[expert]).chunk(2, dim=-1)
                result = F.linear(F.silu(gate) * up, down[expert])
                out.index_add_(0, mine, result.to(torch.float32) * share[begin : begin + count])
                begin += count
        return out.to(x.dtype)
