"""Sampling in torch: exact kept sets and counter-based noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.ref.philox import gumbel

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import SampleInputs

__all__ = ["RefSample", "keep_top_k", "keep_top_p"]


class RefSample:
    """SampleOps in torch."""

    def sample(self, logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] dtype -> [R] int64
        logits = logits.to(torch.float32)
        if inputs.all_greedy:
            return logits.argmax(dim=-1)
        greedy = inputs.temperature == 0
        drawing = (~greedy).nonzero().squeeze(1)
        tokens = logits.argmax(dim=-1)
        scores = logits[drawing] / inputs.temperature[drawing].unsqueeze(1)
        if inputs.any_top_k:
            scores = keep_top_k(scores, inputs.top_k[drawing])
        if inputs.any_top_p:
            scores = keep_top_p(scores, inputs.top_p[drawing])
        scores = scores + gumbel(inputs.seed[drawing], inputs.position[drawing], logits.shape[1])
        tokens[drawing] = scores.argmax(dim=-1)
        return tokens


def keep_top_k(scores: Tensor, top_k: Tensor) -> Tensor:  # [R, V] float32, [R] int64 -> [R, V] float32
    """Return `scores` with -inf where more than top_k - 1 scores of the row are greater. 0 keeps all."""
    vocab = scores.shape[1]
    limit = top_k.where((top_k > 0) & (top_k < vocab), top_k.new_full((), vocab))
    width = int(limit.where(limit < vocab, limit.new_ones(())).max())
    best = scores.topk(width, dim=1).values
    threshold = best.gather(1, (limit.clamp(max=width) - 1).unsqueeze(1))
    return scores.masked_fill((scores < threshold) & (limit < vocab).unsqueeze(1), float("-inf"))


def keep_top_p(scores: Tensor, top_p: Tensor) -> Tensor:  # [R, V] float32, [R] float32 -> [R, V] float32
    """Return `scores` with -inf where the probability mass of greater scores is top_p or more. 1 keeps all.

    Masses are summed in float64, in the order of the scores, so that the kept set is exact and always holds the best.
    """
    ordered = scores.sort(dim=1, descending=True).values
    mass = ordered.softmax(dim=1, dtype=torch.float64).cumsum(dim=1)
    before = mass.roll(1, dims=1)
    before[:, 0] = 0.0
    kept = (before < top_p.to(torch.float64).unsqueeze(1)).sum(dim=1, keepdim=True).clamp(min=1)
    # The last kept of the sorted scores is the threshold; its ties, sorted behind it, are kept with it.
    threshold = ordered.gather(1, kept - 1)
    return scores.masked_fill((scores < threshold) & (top_p < 1).unsqueeze(1), float("-inf"))
