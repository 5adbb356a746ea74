"""Matrix products with torch's own kernels."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefLinear"]


class RefLinear:
    """LinearOps on plain weights."""

    def pack(self, weight: Tensor) -> Tensor:  # [out, in] dtype -> opaque
        return weight

    def unpack(self, packed: Tensor) -> Tensor:  # opaque -> [out, in] dtype
        return packed

    def apply(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], opaque, [out] -> [T, out]
        return F.linear(x, packed, bias)

    @property
    def sum_rows(self) -> int:
        return sys.maxsize

    def apply_onto(self, x: Tensor, packed: Tensor, onto: Tensor) -> Tensor:  # [T, in], opaque, [T, out] -> [T, out]
        return torch.addmm(onto, x, packed.t())
