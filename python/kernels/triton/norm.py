# mypy: disable-error-code="import-untyped, untyped-decorator"
"""RMS norm, with and without the residual's sum: one program a row, one read and one write of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from octavo.kernels.triton.common import begin, launch_options, power_of_two, rounded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonNorm"]


@triton.jit
def _rms_norm_kernel(
    x: tl.tensor,  # [T, H]
    residual: tl.tensor,  # [T, H]: read and overwritten with the sum, where ADD
    weight: tl.tensor,  # [H]: x's dtype or float32
    out: tl.tensor,  # [T, H]: may be x
    x_stride: tl.tensor,
    residual_stride: tl.tensor,
    out_stride: tl.tensor,
    eps: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < SIZE
    scale = tl.load(weight + at, mask=inside, other=0.0)  # a weight: constant, so it may be read before the wait
    begin(DEPENDENT)
    value = tl.load(x + row * x_stride + at, mask=inside, other=0.0)
    dtype: tl.constexpr = x.dtype.element_ty
    if ADD:
        other = tl.load(residual + row * residual_stride + at, mask=inside, other=0.0)
        value = rounded(value.to(tl.float32) + other.to(tl.float32), dtype)
        tl.store(residual + row * residual_stride + at, value, mask=inside)
    wide = value.to(tl.float32)
    inverse = 1.0 / tl.sqrt_rn(tl.sum(wide * wide, axis=0) / SIZE + eps)
    normed = wide * inverse
    if weight.dtype.element_ty == dtype:  # a float32 weight is multiplied before rounding
        normed = rounded(normed, dtype).to(tl.float32)
    tl.store(out + row * out_stride + at, rounded(normed * scale.to(tl.float32), dtype), mask=inside)


class TritonNorm:
    """NormOps in Triton."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rows = _rows(x)
        _launch(rows, rows, weight, out.view(-1, x.shape[-1]), eps, add=False)
        return out

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return (norm, sum), written over `x` and `residual`. Rows must be contiguous in both."""
        _launch(x, residual, weight, x, eps, add=True)
        return x, residual

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, weight.shape, weight, bias, eps)


def _rows(x: Tensor) -> Tensor:  # [..., H] -> [T, H] with contiguous rows
    flat = x.reshape(-1, x.shape[-1])
    return flat if flat.stride(-1) == 1 else flat.contiguous()


def _launch(x: Tensor, residual: Tensor, weight: Tensor, out: Tensor, eps: float, add: bool) -> None:
    count, size = x.shape
    if not count:
        return
    block = power_of_two(size)
    _rms_norm_kernel[(count,)](
        x,
        residual,
        weight,
        out,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        eps,
        SIZE=size,
        BLOCK=block,
        ADD=add,
        num_warps=min(max(block // 512, 1), 16),
        **launch_options(x),
    )
