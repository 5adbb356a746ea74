"""The rotary embedding: RoFormer (arXiv 2104.09864) in the half-split order of Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["rotate"]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [T, heads, D], [T, D], [T, D] dtype -> [T, heads, D]
    """Return x * cos + rotate_half(x) * sin."""
    first, second = x.chunk(2, dim=-1)
    return x * cos.unsqueeze(1) + torch.cat((-second, first), dim=-1) * sin.unsqueeze(1)
