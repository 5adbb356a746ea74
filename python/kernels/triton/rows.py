# mypy: disable-error-code="import-untyped, untyped-decorator"
"""What is known of whole rows of logits, each part of a row by a program of its own: extent, sum of exponentials, rank.

Programs cut rows alike whatever else is in a batch, so that a row's numbers depend on the row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["extent", "load_row", "ranks", "row_grid", "row_parts"]

_BLOCK = 4096
#: Of a part: the greatest and the least finite number, the sum of exponentials, how many are better than the chosen.
_FIELDS: tl.constexpr = tl.constexpr(4)


@triton.jit
def load_row(row: tl.tensor, at: tl.tensor, vocab: tl.tensor) -> tl.tensor:  # pointer, [n] int32 -> [n] float32
    """Return logits, -inf where there is none or no number."""
    value = tl.load(row + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
    return tl.where(value == value, value, float("-inf"))


@triton.jit
def _part_kernel(
    logits: tl.tensor,  # [R, V]
    chosen: tl.tensor,  # [R] int64, for RANK
    parts: tl.tensor,  # [R, blocks, fields] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    RANK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    value = load_row(logits + row * stride, tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), vocab)
    peak = tl.max(value, axis=0)
    place = parts + (row * tl.num_programs(1) + tl.program_id(1)) * _FIELDS
    tl.store(place, peak)
    tl.store(place + 1, tl.min(tl.where(value == float("-inf"), float("inf"), value), axis=0))
    if RANK:
        base = tl.where(peak == float("-inf"), 0.0, peak)
        mine = tl.load(logits + row * stride + tl.load(chosen + row)).to(tl.float32)
        tl.store(place + 2, tl.sum(tl.exp(value - base), axis=0))
        tl.store(place + 3, tl.sum((value > mine).to(tl.float32), axis=0))


@triton.jit
def extent(parts: tl.tensor, row: tl.tensor, blocks: tl.tensor, BLOCKS: tl.constexpr) -> tl.tensor:
    """Return a row's greatest number and its least finite one; -inf and inf where there is none."""
    each = tl.arange(0, BLOCKS)
    place = parts + (row * blocks + each) * _FIELDS
    greatest = tl.load(place, mask=each < blocks, other=float("-inf"))
    least = tl.load(place + 1, mask=each < blocks, other=float("inf"))
    return tl.max(greatest, axis=0), tl.min(least, axis=0)


@triton.jit
def _rank_kernel(
    parts: tl.tensor,  # [R, blocks, fields] float32
    totals: tl.tensor,  # [R] float32: the logarithm of the sum of exponentials
    ranks: tl.tensor,  # [R] int32
    blocks: tl.tensor,
    BLOCKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, BLOCKS)
    place, inside = parts + (row * blocks + each) * _FIELDS, each < blocks
    greatest = tl.load(place, mask=inside, other=float("-inf"))
    top = tl.max(greatest, axis=0)
    total = tl.load(place + 2, mask=inside, other=0.0)
    sum_ = tl.sum(tl.where(greatest == float("-inf"), 0.0, total * tl.exp(greatest - top)), axis=0)
    tl.store(totals + row, top + tl.log(sum_))
    tl.store(ranks + row, tl.sum(tl.load(place + 3, mask=inside, other=0.0), axis=0).to(tl.int32) + 1)


def row_grid(logits: Tensor) -> tuple[tuple[int, int], int]:  # [R, V]
    """Return the programs of a launch that cuts rows as all here do, and the width of a part."""
    block = max(16, min(_BLOCK, power_of_two(logits.shape[1])))
    return (logits.shape[0], triton.cdiv(logits.shape[1], block)), block


def row_parts(logits: Tensor, chosen: Tensor | None = None) -> Tensor:
    """Return the parts of which `extent` makes the extent of a row.

    [R, V], [R] int64 -> [R, blocks, fields] float32. With `chosen`, `ranks` can be told from them too.
    """
    grid, block = row_grid(logits)
    parts = torch.empty((*grid, _FIELDS.value), dtype=torch.float32, device=logits.device)
    if grid[0]:
        _part_kernel[grid](
            logits,
            parts if chosen is None else chosen,
            parts,
            logits.stride(0),
            logits.shape[1],
            BLOCK=block,
            RANK=chosen is not None,
            num_warps=8,
            **launch_options(logits),
        )
    return parts


def ranks(scores: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:  # [R, V], [R] int64 -> [R] float32, [R] int32
    """Return the logarithm of each row's sum of exponentials, and the rank of the chosen token; 1 is the best."""
    parts = row_parts(scores, chosen)
    rows, blocks = parts.shape[:2]
    totals = torch.empty(rows, dtype=torch.float32, device=scores.device)
    places = torch.empty(rows, dtype=torch.int32, device=scores.device)
    if rows:
        _rank_kernel[(rows,)](
            parts, totals, places, blocks, BLOCKS=power_of_two(blocks), num_warps=1, **launch_options(scores)
        )
    return totals, places
