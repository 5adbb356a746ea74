"""Norms with the rounding points of Transformers: LlamaRMSNorm, Gemma2RMSNorm, torch's layer norm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefNorm"]


class RefNorm:
    """NormOps in torch. torch.nn.functional.rms_norm rounds after the product with the weight, so it will not do."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # [..., H] dtype, [H] -> [..., H] dtype
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return (weight * (wide * scale).to(weight.dtype)).to(x.dtype)

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:  # [T, H], [T, H], [H] dtype -> [T, H] dtype, twice
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def layer_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:  # [T, H], [H], [H] dtype -> [T, H] dtype
        return F.layer_norm(x, weight.shape, weight, bias, eps)
