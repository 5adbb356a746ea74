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

from octavo.kernels.triton.common import dot, launch_options, rounded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MAX_FEW", "few_rows", "one_row"]

#: Rows up to which `few_rows` was measured to beat cuBLAS on an H200 (docs/gpu.md).
MAX_FEW = 8
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
def _one_row_kernel(
    x: tl.tensor,  # [SIZE]
    weight: tl.tensor,  # [outputs, SIZE]
    bias: tl.tensor,  # [outputs]
    out: tl.tensor,  # [outputs]
    outputs: tl.tensor,
    weight_stride: tl.tensor,
    SIZE: tl.constexpr,
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
    acc = tl.zeros((ROWS, STRIP), tl.float32)
    for strip in tl.static_range(strips):
        at = strip * STRIP + tl.arange(0, STRIP)
        part = tl.load(x + at, mask=at < SIZE, other=0.0)
        acc += first.to(tl.float32) * part.to(tl.float32)[None, :]
        first = second
        second = third
        if strip + 3 < strips:
            third = _strip(weight, base, (strip + 3) * STRIP, SIZE, STRIP, inside)
    value = tl.sum(acc, axis=1)
    if BIAS:
        value += tl.load(bias + row, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row, rounded(value, out.dtype.element_ty), mask=inside)


@triton.jit
def _few_rows_kernel(
    x: tl.tensor,  # [count, size]
    weight: tl.tensor,  # [outputs, size]
    bias: tl.tensor,  # [outputs]
    out: tl.tensor,  # [count, outputs]
    count: tl.tensor,
    size: tl.tensor,
    outputs: tl.tensor,
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BIAS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    m = tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left = x + m[:, None] * x_stride + k[None, :]
    right = weight + n.to(tl.int64)[:, None] * weight_stride + k[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, size, BLOCK_K):
        inner = (start + k < size)[None, :]
        a = tl.load(left + start, mask=(m < count)[:, None] & inner, other=0.0)
        b = tl.load(right + start, mask=(n < outputs)[:, None] & inner, other=0.0)
        acc = dot(a, tl.trans(b), acc)
    if BIAS:
        acc += tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)[None, :]
    place = m.to(tl.int64)[:, None] * outputs + n[None, :]
    tl.store(out + place, rounded(acc, out.dtype.element_ty), mask=(m < count)[:, None] & (n < outputs)[None, :])


def one_row(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [1, in], [out, in], [out] -> [1, out]
    """Return x @ weight.T + bias. Each row of `weight` is contiguous."""
    outputs, size = weight.shape
    out = torch.empty((1, outputs), dtype=x.dtype, device=x.device)
    _one_row_kernel[(triton.cdiv(outputs, _ROWS),)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        outputs,
        weight.stride(0),
        SIZE=size,
        ROWS=_ROWS,
        STRIP=_STRIP,
        BIAS=bias is not None,
        num_warps=4,
        **launch_options(x),
    )
    return out


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], [out, in], [out] -> [T, out]
    """Return x @ weight.T + bias for at most 16 rows. Rows of `x` and `weight` are contiguous."""
    count, size = x.shape
    outputs = weight.shape[0]
    out = torch.empty((count, outputs), dtype=x.dtype, device=x.device)
    _few_rows_kernel[(triton.cdiv(outputs, 16),)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        count,
        size,
        outputs,
        x.stride(0),
        weight.stride(0),
        BLOCK_M=16,
        BLOCK_N=16,
        BLOCK_K=256,
        BIAS=bias is not None,
        num_warps=4,
        num_stages=4,
        **launch_options(x),
    )
    return out
