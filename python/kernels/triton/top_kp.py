# mypy: disable-error-code="import-untyped, untyped-decorator"
"""The score from which on top-k and top-p keep tokens: a search for the pivot, without a sort.

A float32 maps to a u32 of the same order. The tokens that top-k keeps are those with fewer than k greater ones, those
of top-p have less than p of the mass above them: of both, the kept are the scores from some threshold on, and whether a
candidate is at or above the threshold takes one pass over the row. Each pass asks for three candidates, so that sixteen
passes find it among 2**32. (The idea of searching pivots instead of sorting: Qrita, arXiv 2602.01518.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import SampleInputs

__all__ = ["scaled", "thresholds"]

_BLOCK = 8192


@triton.jit
def scaled(logits: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """Return logits / temperature, correctly rounded, with one zero."""
    return tl.div_rn(logits.to(tl.float32), temperature) + 0.0


@triton.jit
def _to_key(score: tl.tensor) -> tl.tensor:  # float32 -> uint32 of the same order
    bits = score.to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) != 0, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)


@triton.jit
def _from_key(key: tl.tensor) -> tl.tensor:  # uint32 -> float32
    bits = tl.where((key >> 31) != 0, key ^ 0x80000000, key ^ 0xFFFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _keys_and_scores(
    row: tl.tensor, start: tl.tensor, temperature: tl.tensor, vocab: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    at = start + tl.arange(0, BLOCK)
    logits = tl.load(row + at, mask=at < vocab, other=float("-inf"))
    score = scaled(logits, temperature)
    return _to_key(score), score


@triton.jit
def _total(
    row: tl.tensor, temperature: tl.tensor, vocab: tl.tensor, peak: tl.tensor, floor: tl.tensor, BLOCK: tl.constexpr
) -> tl.tensor:
    """Return the mass, relative to the peak's, of the tokens with keys of at least `floor`."""
    total = tl.zeros((1,), tl.float64)
    for start in range(0, vocab, BLOCK):
        key, score = _keys_and_scores(row, start, temperature, vocab, BLOCK)
        weight = tl.where(key >= floor, tl.exp(score - peak), 0.0).to(tl.float64)
        total += tl.sum(weight, axis=0)
    return tl.sum(total, axis=0)


@triton.jit
def _search(
    row: tl.tensor,
    temperature: tl.tensor,
    vocab: tl.tensor,
    peak: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    limit: tl.tensor,
    MASS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Return the least key in low … high with a weight above it of less than `limit`: mass (MASS) or count; or high."""
    while low < high:
        gap = high - low
        first, second, third = low + gap // 4, low + gap // 2, low + gap * 3 // 4
        over1 = tl.zeros((1,), tl.float64)
        over2 = tl.zeros((1,), tl.float64)
        over3 = tl.zeros((1,), tl.float64)
        for start in range(0, vocab, BLOCK):
            key, score = _keys_and_scores(row, start, temperature, vocab, BLOCK)
            if MASS:
                weight = tl.exp(score - peak)
                over1 += tl.sum(tl.where(key > first.to(tl.uint32), weight, 0.0).to(tl.float64), axis=0)
                over2 += tl.sum(tl.where(key > second.to(tl.uint32), weight, 0.0).to(tl.float64), axis=0)
                over3 += tl.sum(tl.where(key > third.to(tl.uint32), weight, 0.0).to(tl.float64), axis=0)
            else:
                over1 += tl.sum((key > first.to(tl.uint32)).to(tl.int32), axis=0)
                over2 += tl.sum((key > second.to(tl.uint32)).to(tl.int32), axis=0)
                over3 += tl.sum((key > third.to(tl.uint32)).to(tl.int32), axis=0)
        if tl.sum(over1, axis=0) < limit:
            high = first
        elif tl.sum(over2, axis=0) < limit:
            low, high = first + 1, second
        elif tl.sum(over3, axis=0) < limit:
            low, high = second + 1, third
        else:
            low = third + 1
    return high


@triton.jit
def _threshold_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    top_k: tl.tensor,  # [R] int64
    top_p: tl.tensor,  # [R] float32
    out: tl.tensor,  # [R] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    at = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperature + at)
    k = tl.load(top_k + at)
    p = tl.load(top_p + at)
    by_count = (k > 0) & (k < vocab)
    tl.store(out + at, float("-inf"))
    if (heat == 0.0) | ((p >= 1.0) & (k <= 0)) | ((p >= 1.0) & (k >= vocab)):
        return
    row = logits + at * stride
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    lowest = tl.full((BLOCK,), float("inf"), tl.float32)
    for start in range(0, vocab, BLOCK):
        column = start + tl.arange(0, BLOCK)
        score = scaled(tl.load(row + column, mask=column < vocab, other=float("-inf")), heat)
        highest = tl.maximum(highest, score)
        lowest = tl.minimum(lowest, tl.where(column < vocab, score, float("inf")))
    peak = tl.max(highest, axis=0)
    low = _to_key(tl.min(lowest, axis=0)).to(tl.int64)
    high = _to_key(peak).to(tl.int64)
    if by_count:
        low = _search(row, heat, vocab, peak, low, high, k.to(tl.float64), False, BLOCK)
    if p < 1.0:
        limit = p.to(tl.float64) * _total(row, heat, vocab, peak, low.to(tl.uint32), BLOCK)
        low = _search(row, heat, vocab, peak, low, high, limit, True, BLOCK)
    tl.store(out + at, _from_key(low.to(tl.uint32)))


def thresholds(logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] -> [R] float32
    """Return the least score (logit / temperature) that each row keeps; -inf: all."""
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(_BLOCK, power_of_two(vocab))
    _threshold_kernel[(rows,)](
        logits,
        inputs.temperature,
        inputs.top_k,
        inputs.top_p,
        out,
        logits.stride(0),
        vocab,
        BLOCK=block,
        num_warps=max(1, min(16, block // 256)),
        **launch_options(logits),
    )
    return out
