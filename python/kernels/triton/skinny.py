# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Products of some rows, too many for `gemv` and too few to be bound by arithmetic: reading the weights is what counts.

The weight stands on the left: tiles of its rows fill the tensor cores, however few rows there are to multiply with. A
tile's columns are split over programs, so that all are resident at once; the last to finish adds what the others left,
in order. Before a program waits for its input, it asks for its first weights: they are on their way to L2 while the
kernel that makes the input runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from octavo.kernels.triton.common import dot, launch_options, num_processors, power_of_two, rounded
from octavo.kernels.triton.fetch import fetch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SkinnyShape", "SkinnyWorkspace", "skinny", "skinny_shape"]

#: Rows that it is for: fewer are `gemv`'s, more are cuBLAS's.
FEWEST, MOST = 3, 64
#: Rows of the weight that a program multiplies: what one instruction of a tensor core takes.
TILE = 64
#: Elements from which on reading a weight takes longer than starting and ending the kernel.
_LARGE = 1 << 24
#: Bytes of each of its rows that a program asks for before it waits.
_AHEAD = 512


@dataclass(frozen=True, slots=True)
class SkinnyShape:
    """How one product is cut."""

    block_k: int  # columns of a step
    num_stages: int
    splits: int


class SkinnyWorkspace:
    """What split programs tell each other. Launches on one stream may share it; graphs keep its addresses."""

    def __init__(self, device: torch.device) -> None:
        slots = 2 * num_processors(device)
        self.partial = torch.empty(slots * TILE * MOST, dtype=torch.float32, device=device)
        self.counters = torch.zeros(slots, dtype=torch.int32, device=device)  # all zero between launches


def skinny_shape(rows: int, outputs: int, size: int, processors: int) -> SkinnyShape | None:
    """Return the cut of a product of `rows` rows, as measured on an H200 (docs/gpu.md); None: cuBLAS is as fast.

    All programs are to be resident at once: two a multiprocessor while there are columns to split, three if not.
    """
    if not FEWEST <= rows <= MOST or outputs % TILE or size % 128:
        return None
    tiles, wide = outputs // TILE, rows > 32
    if tiles > 2 * processors:
        return SkinnyShape(64, 4, 1) if wide else SkinnyShape(128, 3, 1)
    slots = processors if wide or outputs * size < _LARGE else 2 * processors
    most = min(slots // tiles, size // 256)
    splits = 1 << max(most, 1).bit_length() - 1
    if wide and splits > 1 and outputs * size < _LARGE:
        return None
    return SkinnyShape(128, 4, splits)


@triton.jit(do_not_specialize=["count", "steps"])
def _skinny_kernel(
    x: tl.tensor,  # [count, in]
    weight: tl.tensor,  # [outputs, in]
    bias: tl.tensor,  # [outputs]
    out: tl.tensor,  # [count, outputs]
    partial: tl.tensor,  # [tiles, splits, TILE, BLOCK_M] float32
    counters: tl.tensor,  # [tiles] int32: zero before and after
    count: tl.tensor,
    outputs: tl.tensor,  # a multiple of TILE
    steps: tl.tensor,  # of BLOCK_K columns
    x_stride: tl.tensor,
    weight_stride: tl.tensor,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr,
    BIAS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    if DEPENDENT:
        gdc_launch_dependents()
    tile = tl.program_id(0)
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    low = steps * split // splits
    high = steps * (split + 1) // splits
    row = tile * TILE + tl.arange(0, TILE)
    m = tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    if DEPENDENT:
        thread = tl.arange(0, 128)
        mine = weight + (tile * TILE + thread % TILE).to(tl.int64) * weight_stride + low * BLOCK_K
        if AHEAD:
            fetch(mine, tl.minimum(AHEAD, (high - low) * BLOCK_K * 2), thread < TILE)
        gdc_wait()
    weights = weight + row.to(tl.int64)[:, None] * weight_stride + k[None, :]
    inputs = x + m[None, :] * x_stride + k[:, None]
    live = (m < count)[None, :]
    acc = tl.zeros((TILE, BLOCK_M), tl.float32)
    for step in range(low, high):
        w = tl.load(weights + step * BLOCK_K)
        values = tl.load(inputs + step * BLOCK_K, mask=live, other=0.0)
        acc = dot(w, values, acc)
    if splits > 1:
        cells = tl.arange(0, TILE)[:, None] * BLOCK_M + m[None, :]
        first = tile * splits * (TILE * BLOCK_M)
        tl.store(partial + first + split * (TILE * BLOCK_M) + cells, acc)
        tl.debug_barrier()  # the whole program's stores come before its mark
        if tl.atomic_add(counters + tile, 1, sem="acq_rel") != splits - 1:
            return
        tl.debug_barrier()
        tl.store(counters + tile, 0)
        acc = tl.zeros((TILE, BLOCK_M), tl.float32)
        for other in range(splits):
            acc += tl.load(partial + first + other * (TILE * BLOCK_M) + cells, cache_modifier=".cg")
    if BIAS:
        acc += tl.load(bias + row).to(tl.float32)[:, None]
    place = out + m[None, :].to(tl.int64) * outputs + row[:, None]
    tl.store(place, rounded(acc, out.dtype.element_ty), mask=live)


def skinny(
    x: Tensor,  # [T, in] bfloat16, rows contiguous
    weight: Tensor,  # [out, in] bfloat16, contiguous
    bias: Tensor | None,  # [out]
    shape: SkinnyShape,
    workspace: SkinnyWorkspace,
) -> Tensor:  # [T, out] bfloat16
    """Return x @ weight.T + bias; `shape` as `skinny_shape` gives it for this product."""
    count, (outputs, size) = x.shape[0], weight.shape
    out = torch.empty((count, outputs), dtype=x.dtype, device=x.device)
    _skinny_kernel[(outputs // TILE, shape.splits)](
        x,
        weight,
        weight if bias is None else bias,
        out,
        workspace.partial,
        workspace.counters,
        count,
        outputs,
        size // shape.block_k,
        x.stride(0),
        weight.stride(0),
        BLOCK_M=max(16, power_of_two(count)),
        TILE=TILE,
        BLOCK_K=shape.block_k,
        AHEAD=_AHEAD,
        BIAS=bias is not None,
        num_warps=4,
        num_stages=shape.num_stages,
        **launch_options(x),
    )
    return out
