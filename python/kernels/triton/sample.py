# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Sampling in one pass over the logits: the argmax of scores with counter-based noise; greedy rows have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two
from octavo.kernels.triton.noise import gumbel_quads
from octavo.kernels.triton.top_kp import scaled, thresholds

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import SampleInputs

__all__ = ["TritonSample"]

_BLOCK = 4096


@triton.jit
def _best(
    value: tl.tensor, token: tl.tensor, inside: tl.tensor
) -> tl.tensor:  # [n] float32, [n] int32, [n] bool -> float32, int32
    """Return the greatest value and the least token that has it; no number counts as -inf."""
    value = tl.where(inside & (value == value), value, float("-inf"))
    best = tl.max(value, axis=0)
    return best, tl.min(tl.where(inside & (value == best), token, 2147483647), axis=0)


@triton.jit
def _block_kernel(
    logits: tl.tensor,  # [R, V]
    temperature: tl.tensor,  # [R] float32
    seed: tl.tensor,  # [R] int64
    position: tl.tensor,  # [R] int64
    threshold: tl.tensor,  # [R] float32
    values: tl.tensor,  # [R, blocks] float32
    tokens: tl.tensor,  # [R, blocks] int32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    GREEDY: tl.constexpr,
    LIMITED: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    token = block * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    score = tl.load(logits + row * stride + token, mask=inside, other=float("-inf")).to(tl.float32)
    if not GREEDY:
        heat = tl.load(temperature + row)
        if heat != 0.0:
            score = scaled(score, heat)
            if LIMITED:
                score = tl.where(score >= tl.load(threshold + row), score, float("-inf"))
            quads = block * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
            noise = gumbel_quads(tl.load(seed + row), tl.load(position + row), quads)
            score += noise.reshape(BLOCK)
    best, at = _best(score, token, inside)
    place = row * tl.num_programs(1) + block
    tl.store(values + place, best)
    tl.store(tokens + place, at)


@triton.jit
def _reduce_kernel(
    values: tl.tensor,  # [R, blocks] float32
    tokens: tl.tensor,  # [R, blocks] int32
    out: tl.tensor,  # [R] int64
    blocks: tl.tensor,
    BLOCKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCKS)
    inside = at < blocks
    value = tl.load(values + row * blocks + at, mask=inside, other=float("-inf"))
    token = tl.load(tokens + row * blocks + at, mask=inside, other=0)
    _, best = _best(value, token, inside)
    tl.store(out + row, best.to(tl.int64))


class TritonSample:
    """SampleOps in Triton. Logits may also be bfloat16: they are widened in registers."""

    def sample(self, logits: Tensor, inputs: SampleInputs) -> Tensor:
        rows, vocab = logits.shape
        out = torch.empty(rows, dtype=torch.int64, device=logits.device)
        if not rows:
            return out
        limited = not inputs.all_greedy and (inputs.any_top_k or inputs.any_top_p)
        threshold = thresholds(logits, inputs) if limited else inputs.temperature
        block = max(4, min(_BLOCK, power_of_two(vocab)))
        blocks = triton.cdiv(vocab, block)
        values = torch.empty((rows, blocks), dtype=torch.float32, device=logits.device)
        tokens = torch.empty((rows, blocks), dtype=torch.int32, device=logits.device)
        options = launch_options(logits)
        _block_kernel[(rows, blocks)](
            logits,
            inputs.temperature,
            inputs.seed,
            inputs.position,
            threshold,
            values,
            tokens,
            logits.stride(0),
            vocab,
            BLOCK=block,
            GREEDY=inputs.all_greedy,
            LIMITED=limited,
            num_warps=8,
            **options,
        )
        _reduce_kernel[(rows,)](values, tokens, out, blocks, BLOCKS=power_of_two(blocks), num_warps=1, **options)
        return out
