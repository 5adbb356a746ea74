"""The rotary embedding: RoFormer (arXiv 2104.09864) in the half-split order of Transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.ref.norm import RefNorm

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import QkNorm

__all__ = ["normed", "rotate"]

_NORM = RefNorm()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [T, heads, D], [T, D], [T, D] dtype -> [T, heads, D]
    """Return x * cos + rotate_half(x) * sin, computed in the type of cos and sin."""
    first, second = x.chunk(2, dim=-1)
    turned = x * cos.unsqueeze(1) + torch.cat((-second, first), dim=-1) * sin.unsqueeze(1)
    return turned.to(x.dtype)


def normed(
    q: Tensor, k: Tensor, norm: QkNorm | None
) -> tuple[Tensor, Tensor]:  # [T, N, D], [T, K, D] dtype -> the same
    """Return queries and keys after the norm over each head, or as they are without one."""
    if norm is None:
        return q, k
    return _NORM.rms_norm(q, norm.q, norm.eps), _NORM.rms_norm(k, norm.k, norm.eps)
