# mypy: disable-error-code="import-untyped, untyped-decorator"
"""The score from which on top-k and top-p keep tokens: a search over the range of logits, without a sort.

Top-k keeps the tokens with fewer than k greater ones, top-p those with less than p of the mass above them: both keep
all logits from some threshold on. A pass sums the weights (ones or masses) above 15 pivots between the greatest and
the least logit; the next does so between the two pivots where the limit is reached. What lies between the two pivots
that are found then, few logits, is gathered, and one program for each row bisects it. (Searching pivots instead of
sorting: Qrita, arXiv 2602.01518.) If more are gathered than there is room for, it bisects the row itself.

Dividing by the temperature keeps the order, so that the search is on logits: the threshold of scores is that of logits,
divided. Sums are integers, masses in units of 2**-40 of the most likely token, so that they do not depend on the order
in which programs add to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two
from octavo.kernels.triton.rows import extent, load_row, row_grid, row_parts

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import SampleInputs

__all__ = ["scaled", "thresholds"]

_LEVELS = 2
_CHUNK, _ROOM = 512, 4096
_UNIT: tl.constexpr = tl.constexpr(1099511627776.0)
#: How far below the greatest logit pivots reach: in logits, and for masses in scores. What is below is one interval.
_SPAN_LOGITS: tl.constexpr = tl.constexpr(64.0)
_SPAN_SCORES: tl.constexpr = tl.constexpr(32.0)
_LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def scaled(logits: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """Return logits / temperature, correctly rounded, with one zero."""
    return tl.div_rn(logits.to(tl.float32), temperature) + 0.0


@triton.jit
def _to_key(value: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:  # float32 -> int64 of the same order
    bits = (value + 0.0).to(tl.uint32, bitcast=True)
    return (tl.where((bits >> 31) != 0, bits ^ 0xFFFFFFFF, bits ^ 0x80000000) >> SHIFT).to(tl.int64)


@triton.jit
def _from_key(key: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:  # int64 -> float32
    wide = (key << SHIFT).to(tl.uint32)
    bits = tl.where((wide >> 31) != 0, wide ^ 0x80000000, (wide | ((1 << SHIFT) - 1)) ^ 0xFFFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _search(
    row: tl.tensor, rows: tl.tensor, limits: tl.tensor, temperature: tl.tensor, peak: tl.tensor, least: tl.tensor,
    sums: tl.tensor, vocab: tl.tensor, level: tl.tensor, MASS: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Return what is known after `level` passes.

    The weight that must not be reached above the threshold (0: the row keeps all), the range of the threshold (at most
    the first, more than the second), the weight above it, and whether it has no lower end.
    """
    limit = tl.zeros((), tl.int64)
    heat = tl.load(temperature + row)
    drawn = (heat != 0.0) & (peak > float("-inf"))
    span = tl.where(MASS, _SPAN_SCORES * heat, _SPAN_LOGITS)
    if drawn:
        whole = tl.load(sums + row * 16 + 15)  # of the first pass: all the weight there is
        if MASS:
            p = tl.load(limits + row)
            if p < 1.0:
                limit += 1
                if level > 0:
                    limit = tl.maximum(tl.ceil(p.to(tl.float64) * whole.to(tl.float64)).to(tl.int64), 1)
        else:
            k = tl.load(limits + row)
            if (k > 0) & (k < vocab) & ((level == 0) | (whole >= k)):
                limit = k.to(tl.int64)
    above = tl.zeros((), tl.int64)
    bottom = tl.full((), 1, tl.int32)
    high, low = peak, tl.maximum(least, peak - span)
    digit = tl.arange(0, 16)
    for at in range(level):
        weight = tl.load(sums + (at * rows + row) * 16 + digit)
        first = tl.min(tl.where((above + weight >= limit) & (digit < 15), digit, 15), axis=0)
        step = (high - low) * 0.0625
        above += tl.sum(tl.where(digit == first - 1, weight, 0), axis=0)
        next_high = high - first.to(tl.float32) * step
        low = tl.where(first == 15, low, high - (first + 1).to(tl.float32) * step)
        high = next_high
        bottom = bottom & (first == 15).to(tl.int32)
    return limit, high, low, above, bottom


@triton.jit
def _within(
    value: tl.tensor, high: tl.tensor, low: tl.tensor, bottom: tl.tensor, floor: tl.tensor
) -> tl.tensor:  # [n] float32 -> [n] bool
    return (value <= high) & ((value > low) | (bottom != 0)) & (value >= floor)


@triton.jit
def _weight(value: tl.tensor, peak: tl.tensor, heat: tl.tensor, MASS: tl.constexpr) -> tl.tensor:  # [n] -> [n] float32
    if MASS:
        return tl.exp2((value - peak) * tl.div_rn(_LOG2E, heat))
    return tl.full(value.shape, 1.0, tl.float32)


@triton.jit(do_not_specialize=["level"])
def _sum_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    limits: tl.tensor,  # [R] int64: k; with MASS float32: p
    parts: tl.tensor,  # as in rows.py
    floor: tl.tensor,  # [R] float32: the least logit that takes part
    sums: tl.tensor,  # [levels, R, 16] int64, zero before: weights above the pivots, and of all
    stride: tl.tensor,
    vocab: tl.tensor,
    level: tl.tensor,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row, rows = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    peak, least = extent(parts, row, tl.num_programs(1), BLOCKS)
    limit, high, low, _, bottom = _search(
        row, rows, limits, temperature, peak, least, sums, vocab, level, MASS
    )  # fmt: skip
    if limit == 0:
        return
    heat, least_kept = tl.load(temperature + row), tl.load(floor + row)
    digit = tl.arange(0, 16)
    pivot = tl.where(digit < 15, high - (digit + 1).to(tl.float32) * ((high - low) * 0.0625), float("-inf"))
    acc = tl.zeros((16, CHUNK), tl.float32)
    for start in range(0, BLOCK, CHUNK):
        at = tl.program_id(1) * BLOCK + start + tl.arange(0, CHUNK)
        value = load_row(logits + row * stride, at, vocab)
        inside = _within(value, high, low, bottom, least_kept) & (value > float("-inf"))
        if tl.max(inside.to(tl.int32), axis=0) > 0:
            weight = tl.where(inside, _weight(value, peak, heat, MASS), 0.0)
            acc += tl.where(value[None, :] > pivot[:, None], weight[None, :], 0.0)
    total = (tl.sum(acc, axis=1).to(tl.float64) * (_UNIT if MASS else 1.0) + 0.5).to(tl.int64)
    tl.atomic_add(sums + (level * rows + row) * 16 + digit, total, mask=total > 0, sem="relaxed")


@triton.jit(do_not_specialize=["level"])
def _collect_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    limits: tl.tensor,  # [R] int64 or float32
    parts: tl.tensor,
    floor: tl.tensor,  # [R] float32
    sums: tl.tensor,  # [levels, R, 16] int64
    counts: tl.tensor,  # [R] int32, zero before
    found: tl.tensor,  # [R, room] as the logits
    stride: tl.tensor,
    vocab: tl.tensor,
    level: tl.tensor,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROOM: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    peak, least = extent(parts, row, tl.num_programs(1), BLOCKS)
    limit, high, low, _, bottom = _search(
        row, tl.num_programs(0), limits, temperature, peak, least, sums, vocab, level, MASS
    )  # fmt: skip
    if limit == 0:
        return
    least_kept = tl.load(floor + row)
    for start in range(0, BLOCK, CHUNK):
        at = tl.program_id(1) * BLOCK + start + tl.arange(0, CHUNK)
        value = load_row(logits + row * stride, at, vocab)
        inside = (_within(value, high, low, bottom, least_kept) & (at < vocab)).to(tl.int32)
        number = tl.sum(inside, axis=0)
        if number > 0:
            place = tl.atomic_add(counts + row, number, sem="relaxed") + tl.cumsum(inside, axis=0) - 1
            kept = (inside > 0) & (place < ROOM)
            tl.store(found + row * ROOM + place, value.to(found.dtype.element_ty), mask=kept)


@triton.jit(do_not_specialize=["level"])
def _finish_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    limits: tl.tensor,  # [R] int64 or float32
    parts: tl.tensor,
    floor: tl.tensor,  # [R] float32: raised to the logit found
    sums: tl.tensor,  # [levels, R, 16] int64
    counts: tl.tensor,  # [R] int32
    found: tl.tensor,  # [R, room]
    threshold: tl.tensor,  # [R] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    blocks: tl.tensor,
    level: tl.tensor,
    MASS: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROOM: tl.constexpr,
    SHIFT: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    peak, least = extent(parts, row, blocks, BLOCKS)
    limit, high, low, above, bottom = _search(
        row, tl.num_programs(0), limits, temperature, peak, least, sums, vocab, level, MASS
    )  # fmt: skip
    heat, least_kept = tl.load(temperature + row), tl.load(floor + row)
    if limit > 0:
        count = tl.load(counts + row)
        # At the key `over` the weight above is below the limit; at `under` it is not, or no logit is there.
        over, under = _to_key(high, SHIFT), _to_key(tl.where(bottom != 0, float("-inf"), low), SHIFT) - 1
        each = tl.arange(0, ROOM)
        if count <= ROOM:
            value = load_row(found + row * ROOM, each, count)
            key = tl.where(each < count, _to_key(value, SHIFT), -1)
            weight = (_weight(value, peak, heat, MASS).to(tl.float64) * (_UNIT if MASS else 1.0) + 0.5).to(tl.int64)
            while over - under > 1:
                middle = (over + under) >> 1
                reached = above + tl.sum(tl.where(key > middle, weight, 0), axis=0) >= limit
                under = tl.where(reached, middle, under)
                over = tl.where(reached, over, middle)
        else:
            while over - under > 1:
                middle = (over + under) >> 1
                total = above
                for start in range(0, vocab, ROOM):
                    value = load_row(logits + row * stride, start + each, vocab)
                    inside = _within(value, high, low, bottom, least_kept) & (_to_key(value, SHIFT) > middle)
                    part = _weight(value, peak, heat, MASS).to(tl.float64) * (_UNIT if MASS else 1.0) + 0.5
                    total += tl.sum(tl.where(inside & (start + each < vocab), part.to(tl.int64), 0), axis=0)
                under = tl.where(total >= limit, middle, under)
                over = tl.where(total >= limit, over, middle)
        least_kept = tl.maximum(least_kept, _from_key(over, SHIFT))
        tl.store(floor + row, least_kept)
    tl.store(threshold + row, scaled(least_kept, tl.where(heat == 0.0, 1.0, heat)))


def thresholds(logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] -> [R] float32
    """Return the least score (logit / temperature) that each row keeps; -inf: all."""
    (rows, blocks), block = row_grid(logits)
    vocab, device = logits.shape[1], logits.device
    threshold = torch.empty(rows, dtype=torch.float32, device=device)
    floor = torch.full((rows,), float("-inf"), dtype=torch.float32, device=device)
    parts, options = row_parts(logits), launch_options(logits)
    wanted = ((False, inputs.any_top_k, inputs.top_k), (True, inputs.any_top_p, inputs.top_p))
    searches = [(mass, limits) for mass, any_row, limits in wanted if any_row]
    zeros = torch.zeros((len(searches), rows * (16 * _LEVELS + 1)), dtype=torch.int64, device=device)
    found = torch.empty((rows, _ROOM), dtype=logits.dtype, device=device)
    for mine, (mass, limits) in zip(zeros, searches, strict=True):
        sums, counts = mine[rows:], mine[:rows].view(torch.int32)
        state = (logits, inputs.temperature, limits, parts, floor, sums)
        sizes = {"MASS": mass, "BLOCKS": power_of_two(blocks), "enable_fp_fusion": False, **options}
        cut = {"BLOCK": block, "CHUNK": min(_CHUNK, block), "num_warps": 4}
        for level in range(_LEVELS):
            _sum_kernel[(rows, blocks)](*state, logits.stride(0), vocab, level, **cut, **sizes)
        _collect_kernel[(rows, blocks)](
            *state, counts, found, logits.stride(0), vocab, _LEVELS, ROOM=_ROOM, **cut, **sizes
        )
        _finish_kernel[(rows,)](
            *state,
            counts,
            found,
            threshold,
            logits.stride(0),
            vocab,
            blocks,
            _LEVELS,
            ROOM=_ROOM,
            SHIFT=16 if logits.dtype == torch.bfloat16 else 0,
            num_warps=8,
            **sizes,
        )
    return threshold
