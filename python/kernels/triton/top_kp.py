# mypy: disable-error-code="import-untyped, untyped-decorator"
"""The score from which on top-k and top-p keep tokens: a radix search, without a sort.

A float32 maps to a u32 key of the same order. Top-k keeps the tokens with fewer than k greater ones, top-p those with
less than p of the mass above them: both keep all keys from some threshold on. Eight passes over the logits find it, of
four bits each: a pass sums the weights (ones or masses) of the keys that share the digits found so far, by their next
digit, and the next pass finds the digit in which the weight above crosses the limit. (Searching pivots instead of
sorting: Qrita, arXiv 2602.01518.)

Sums are integers, masses in units of 2**-40 of the most likely token, so that they do not depend on the order in which
programs add to them.
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

_LEVELS = 8
_BLOCK, _CHUNK = 4096, 512


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
def _peak_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    peaks: tl.tensor,  # [R, blocks] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    heat = tl.load(temperature + row)
    value = tl.load(logits + row * stride + at, mask=at < vocab, other=float("-inf"))
    score = scaled(value, tl.where(heat == 0.0, 1.0, heat))
    tl.store(peaks + row * tl.num_programs(1) + tl.program_id(1), tl.max(score, axis=0))


@triton.jit
def _limit(
    row: tl.tensor, top_k: tl.tensor, top_p: tl.tensor, temperature: tl.tensor, sums: tl.tensor, vocab: tl.tensor,
    MASS: tl.constexpr, level: tl.tensor,
) -> tl.tensor:  # fmt: skip
    """Return the weight that must not be reached above the threshold; 0: the row keeps all."""
    limit = tl.zeros((), tl.int64)
    heat = tl.load(temperature + row)
    if MASS:
        p = tl.load(top_p + row)
        if (heat != 0.0) & (p < 1.0):
            limit += 1
            if level > 0:  # the sums of the first level are all the mass there is
                whole = tl.sum(tl.load(sums + row * 16 + tl.arange(0, 16)), axis=0)
                limit = tl.maximum(tl.ceil(p.to(tl.float64) * whole.to(tl.float64)).to(tl.int64), 1)
    else:
        k = tl.load(top_k + row)
        if (heat != 0.0) & (k > 0) & (k < vocab):
            limit = k.to(tl.int64)
    return limit


@triton.jit
def _descend(
    row: tl.tensor, rows: tl.tensor, sums: tl.tensor, state: tl.tensor, limit: tl.tensor, level: tl.tensor
) -> tl.tensor:
    """Return the digits found up to `level`, and the weight of the keys above all that share them."""
    prefix = tl.zeros((), tl.int64)
    above = tl.zeros((), tl.int64)
    if level > 0:
        last = (level - 1) * rows + row
        digit = tl.arange(0, 16)
        weight = tl.load(sums + last * 16 + digit)
        over = tl.load(state + last * 2 + 1) + tl.sum(weight, axis=0) - tl.cumsum(weight, axis=0)
        found = tl.min(tl.where(over < limit, digit, 15), axis=0)
        above = tl.sum(tl.where(digit == found, over, 0), axis=0)
        prefix = tl.load(state + last * 2) * 16 + found
    return prefix, above


@triton.jit(do_not_specialize=["level"])  # eight launches, one kernel
def _sum_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    top_k: tl.tensor,  # [R] int64
    top_p: tl.tensor,  # [R] float32
    peaks: tl.tensor,  # [R, blocks] float32, for MASS
    floor: tl.tensor,  # [R] int64: the least key that takes part, for MASS
    sums: tl.tensor,  # [levels, R, 16] int64, zero before
    state: tl.tensor,  # [levels, R, 2] int64: digits found so far and weight above, zero for level 0
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
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    block = tl.program_id(1)
    blocks = tl.num_programs(1)
    limit = _limit(row, top_k, top_p, temperature, sums, vocab, MASS, level)
    if limit == 0:
        return
    prefix, above = _descend(row, rows, sums, state, limit, level)
    if (level > 0) & (block == 0):
        tl.store(state + (level * rows + row) * 2, prefix)
        tl.store(state + (level * rows + row) * 2 + 1, above)
    heat = tl.load(temperature + row)
    peak = 0.0
    least = tl.zeros((), tl.int64)
    if MASS:
        each = tl.arange(0, BLOCKS)
        peak = tl.max(tl.load(peaks + row * blocks + each, mask=each < blocks, other=float("-inf")), axis=0)
        least = tl.load(floor + row)
    digits = tl.arange(0, 16).to(tl.uint32)
    acc = tl.zeros((16, CHUNK), tl.float32)
    for start in range(0, BLOCK, CHUNK):
        at = block * BLOCK + start + tl.arange(0, CHUNK)
        inside = at < vocab
        score = scaled(tl.load(logits + row * stride + at, mask=inside, other=float("-inf")), heat)
        key = _to_key(score)
        shared = inside & (key >= least.to(tl.uint32))
        # The digits found so far, which of none are none: a shift by all 32 bits is not defined.
        shared = shared & (
            (level == 0) | ((key >> (32 - 4 * tl.maximum(level, 1)).to(tl.uint32)) == prefix.to(tl.uint32))
        )
        if tl.max(shared.to(tl.int32), axis=0) > 0:
            weight = tl.where(shared, tl.exp(score - peak) if MASS else 1.0, 0.0)
            digit = (key >> (28 - 4 * level).to(tl.uint32)) & 15
            acc += tl.where(digit[None, :] == digits[:, None], weight[None, :], 0.0)
    value = (tl.sum(acc, axis=1).to(tl.float64) * (1099511627776.0 if MASS else 1.0) + 0.5).to(tl.int64)
    place = sums + (level * rows + row) * 16 + tl.arange(0, 16)
    tl.atomic_add(place, value, mask=value > 0, sem="relaxed")


@triton.jit
def _finish_kernel(
    temperature: tl.tensor,  # [R] float32
    top_k: tl.tensor,  # [R] int64
    top_p: tl.tensor,  # [R] float32
    sums: tl.tensor,  # [levels, R, 16] int64
    state: tl.tensor,  # [levels, R, 2] int64
    floor: tl.tensor,  # [R] int64: raised to the key found
    threshold: tl.tensor,  # [R] float32
    vocab: tl.tensor,
    MASS: tl.constexpr,
    LEVELS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    limit = _limit(row, top_k, top_p, temperature, sums, vocab, MASS, LEVELS)
    key = tl.load(floor + row)
    if limit > 0:
        found, _ = _descend(row, tl.num_programs(0), sums, state, limit, LEVELS)
        key = tl.maximum(key, found)
        tl.store(floor + row, key)
    tl.store(threshold + row, tl.where(key == 0, float("-inf"), _from_key(key.to(tl.uint32))))


def thresholds(logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] -> [R] float32
    """Return the least score (logit / temperature) that each row keeps; -inf: all."""
    rows, vocab = logits.shape
    block = max(16, min(_BLOCK, power_of_two(vocab)))
    grid = (rows, triton.cdiv(vocab, block))
    searches = [mass for mass, wanted in ((False, inputs.any_top_k), (True, inputs.any_top_p)) if wanted]
    threshold = torch.full((rows,), float("-inf"), dtype=torch.float32, device=logits.device)
    cells = _LEVELS * rows * (16 + 2)
    zeros = torch.zeros(len(searches) * cells + rows, dtype=torch.int64, device=logits.device)
    floor, zeros = zeros[:rows], zeros[rows:]
    peaks = torch.empty(grid, dtype=torch.float32, device=logits.device)
    options = launch_options(logits)
    limits = (inputs.temperature, inputs.top_k, inputs.top_p)
    for number, mass in enumerate(searches):
        mine = zeros[number * cells : (number + 1) * cells]
        sums, state = mine[: _LEVELS * rows * 16], mine[_LEVELS * rows * 16 :]
        if mass:
            _peak_kernel[grid](logits, inputs.temperature, peaks, logits.stride(0), vocab, BLOCK=block, **options)
        for level in range(_LEVELS):
            _sum_kernel[grid](
                logits,
                *limits,
                peaks,
                floor,
                sums,
                state,
                logits.stride(0),
                vocab,
                level,
                MASS=mass,
                BLOCK=block,
                CHUNK=min(_CHUNK, block),
                BLOCKS=power_of_two(grid[1]),
                num_warps=4,
                **options,
            )
        _finish_kernel[(rows,)](
            *limits, sums, state, floor, threshold, vocab, MASS=mass, LEVELS=_LEVELS, num_warps=1, **options
        )
    return threshold
