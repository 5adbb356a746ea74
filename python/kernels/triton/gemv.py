# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Products of one row, or a few, with a weight matrix: bound by reading the weights, so that is all they wait for.

A program asks for its first weights before it waits for the kernel that makes its input (dependent launch): weights are
constant, and their way from memory hides the end of that kernel and the start of this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from octavo.kernels.triton.common import launch_options, rounded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MAX_FEW", "few_rows"]

#: Rows up to which `few_rows` was measured to beat cuBLAS on an H200 (docs/gpu.md).
MAX_FEW = 2
_ROWS, _STRIP = 2, 1024


@triton.jit
def _strip(
    weight: tl.tensor, base: tl.tensor, column: tl.tensor, SIZE: tl.constexpr, STRIP: tl.constexpr, inside: tl.tensor
) -> tl.tensor:
    at = column + tl.arange(0, STRIP)
    if SIZE % STRIP == 0:
        return tl.load(weight + base[:, None] + at[None, :], mask=inside[:, None], other=0.0)
    return tl.load(weight + base[:, None] + at[None, :], mask=inside[:, None] & (at < SIZE)[None, :], other=0.0)


@triton.jit
def _few_rows_kernel(
    x: tl.tensor,  # [COUNT, SIZE]
    weight: tl.tensor,  # [outputs, SIZE]
    bias: tl.tensor,  # [outputs]
    out: tl.tensor,  # [COUNT, outputs]
    outputs: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    STRIP: tl.constexpr,
    BIAS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    if DEPENDENT:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < outputs
    base = row.to(tl.int64) * weight_stride
    strips: tl.constexpr = (SIZE + STRIP - 1) // STRIP
    # Three strips are on their way at any time.
    first = _strip(weight, base, 0, SIZE, STRIP, inside)
    second = first
    third = first
    if strips > 1:
        second = _strip(weight, base, STRIP, SIZE, STRIP, inside)
    if strips > 2:
        third = _strip(weight, base, 2 * STRIP, SIZE, STRIP, inside)
    if DEPENDENT:
        gdc_wait()
    acc0 = tl.zeros((ROWS, STRIP), tl.float32)
    acc1 = acc0
    for strip in tl.static_range(strips):
        at = strip * STRIP + tl.arange(0, STRIP)
        wide = first.to(tl.float32)
        acc0 += wide * tl.load(x + at, mask=at < SIZE, other=0.0).to(tl.float32)[None, :]
        if COUNT > 1:
            acc1 += wide * tl.load(x + x_stride + at, mask=at < SIZE, other=0.0).to(tl.float32)[None, :]
        first = second
        second = third
        if strip + 3 < strips:
            third = _strip(weight, base, (strip + 3) * STRIP, SIZE, STRIP, inside)
    added = tl.zeros((ROWS,), tl.float32)
    if BIAS:
        added = tl.load(bias + row, mask=inside, other=0.0).to(tl.float32)
    dtype: tl.constexpr = out.dtype.element_ty
    tl.store(out + row, rounded(tl.sum(acc0, axis=1) + added, dtype), mask=inside)
    if COUNT > 1:
        tl.store(out + outputs + row, rounded(tl.sum(acc1, axis=1) + added, dtype), mask=inside)


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], [out, in], [out] -> [T, out]
    """Return x @ weight.T + bias for at most MAX_FEW rows. Rows of `x` and `weight` are contiguous."""
    count = x.shape[0]
    outputs, size = weight.shape
    out = torch.empty((count, outputs), dtype=x.dtype, device=x.device)
    _few_rows_kernel[(triton.cdiv(outputs, _ROWS),)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        outputs,
        x.stride(0),
        weight.stride(0),
        SIZE=size,
        COUNT=count,
        ROWS=_ROWS,
        STRIP=_STRIP,
        BIAS=bias is not None,
        num_warps=4,
        **launch_options(x),
    )
    return out
