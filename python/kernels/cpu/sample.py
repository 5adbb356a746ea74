"""Sampling on CPUs: rows with top-k or top-p look at their best tokens only.

A full sort and noise for a whole vocabulary cost more than a layer. The best `_WIDTH` scores nearly always hold the
whole kept set; a row where they may not goes through the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.api import SampleInputs
from octavo.kernels.ref.philox import gumbel, gumbel_of
from octavo.kernels.ref.sample import RefSample

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CpuSample"]

_WIDTH = 1024

#: Scores that are drawn from at once: their temporaries, of 8 bytes each, stay in the cache.
_TOGETHER = 1 << 15


class CpuSample:
    """SampleOps for CPUs; the same tokens as RefSample."""

    def __init__(self) -> None:
        self._ref = RefSample()

    def sample(self, logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] dtype -> [R] int64
        logits = logits.to(torch.float32)
        tokens = logits.argmax(dim=-1)
        if inputs.all_greedy:
            return tokens
        drawing = inputs.temperature > 0
        filtered = drawing & ((inputs.top_k > 0) | (inputs.top_p < 1))
        plain = (drawing & ~filtered).nonzero().flatten()
        count = max(1, _TOGETHER // logits.shape[1])
        for first in range(0, len(plain), count):
            rows = plain[first : first + count]
            noise = gumbel(inputs.seed[rows], inputs.position[rows], logits.shape[1])
            tokens[rows] = (logits[rows] / inputs.temperature[rows].unsqueeze(1) + noise).argmax(dim=-1)
        rows = filtered.nonzero().flatten()
        if len(rows):
            picked, sure = _sample_best(logits[rows], _take(inputs, rows))
            tokens[rows] = picked
            rest = rows[~sure]
            if len(rest):
                tokens[rest] = self._ref.sample(logits[rest], _take(inputs, rest))
        return tokens


def _sample_best(logits: Tensor, inputs: SampleInputs) -> tuple[Tensor, Tensor]:  # [R, V] -> [R] int64, [R] bool
    """Return a token for each row, and whether the best `_WIDTH` scores held all that is kept."""
    scores = logits / inputs.temperature.unsqueeze(1)
    vocab = scores.shape[1]
    best, ids = scores.topk(min(_WIDTH, vocab), dim=1)  # [R, W], descending
    last, width = best[:, -1:], best.shape[1]
    top_k = inputs.top_k.unsqueeze(1)
    all_k = (top_k <= 0) | (top_k >= vocab)
    by_k = best.gather(1, (top_k.where(~all_k, 1) - 1).clamp(max=width - 1))  # the least score that top-k keeps
    kept = all_k | (best >= by_k)
    mass = (best.to(torch.float64) - best[:, :1]).exp().masked_fill(~kept, 0.0)
    total = mass.sum(dim=1, keepdim=True)
    if all_k.any():
        total = (scores.to(torch.float64) - best[:, :1]).exp().sum(dim=1, keepdim=True).where(all_k, total)
    before = (mass.cumsum(dim=1) - mass) / total
    count = (kept & (before < inputs.top_p.to(torch.float64).unsqueeze(1))).sum(dim=1, keepdim=True).clamp(min=1)
    threshold = best.gather(1, count - 1)
    # Where the last score that we looked at is dropped, so is everything behind it. Ties of a threshold may lie there.
    sure = (
        (last < threshold) & (all_k | ((top_k <= width) & (last < by_k)))
        if width < vocab
        else all_k.new_ones(all_k.shape)
    )
    noisy = best + gumbel_of(inputs.seed, inputs.position, ids)
    choice = noisy.masked_fill(best < threshold, float("-inf")).argmax(dim=1, keepdim=True)
    return ids.gather(1, choice).squeeze(1), sure.squeeze(1)


def _take(inputs: SampleInputs, rows: Tensor) -> SampleInputs:  # [r] int64
    return SampleInputs(
        temperature=inputs.temperature[rows],
        top_k=inputs.top_k[rows],
        top_p=inputs.top_p[rows],
        seed=inputs.seed[rows],
        position=inputs.position[rows],
        all_greedy=False,
        any_top_k=inputs.any_top_k,
        any_top_p=inputs.any_top_p,
    )
