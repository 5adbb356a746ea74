# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Penalties, min-p and log probabilities with few passes over the vocabulary; what names tokens is in edits.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two
from octavo.kernels.triton.edits import ban_words, edit
from octavo.kernels.triton.rows import extent, ranks, row_grid, row_parts
from octavo.kernels.triton.thinking import end_thinking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.kernels.api import History
    from octavo.kernels.logit_rows import BannedWords, Edits, Thinking

__all__ = ["TritonLogits"]

_BLOCK = 1024
#: Set in a token's mark if it stands in prompt or output; the bits below count how often it stands in the output.
_SEEN: tl.constexpr = tl.constexpr(1 << 30)


@triton.jit(do_not_specialize=["stride"])
def _mark_kernel(
    tokens: tl.tensor,  # [R, L] int32
    prompts: tl.tensor,  # [R] int64
    lengths: tl.tensor,  # [R] int64
    marks: tl.tensor,  # [R, V] int32, zeros
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    known = place < tl.load(lengths + row)
    token = tl.load(tokens + row * stride + place, mask=known, other=0)
    known = known & (token >= 0) & (token < vocab)
    said = known & (place >= tl.load(prompts + row))
    mark = marks + row * vocab + token
    tl.atomic_or(mark, tl.full((BLOCK,), _SEEN, tl.int32), mask=known, sem="relaxed")
    tl.atomic_add(mark, tl.full((BLOCK,), 1, tl.int32), mask=said, sem="relaxed")


@triton.jit
def _penalize_kernel(
    logits: tl.tensor,  # [R, V] float32
    marks: tl.tensor,  # [R, V] int32
    penalties: tl.tensor,  # [R, 3] float32: repetition, frequency, presence
    out: tl.tensor,  # [R, V] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    value = tl.load(logits + row * stride + token, mask=inside)
    mark = tl.load(marks + row * vocab + token, mask=inside)
    repetition = tl.load(penalties + 3 * row)
    frequency = tl.load(penalties + 3 * row + 1)
    presence = tl.load(penalties + 3 * row + 2)
    count = (mark & (_SEEN - 1)).to(tl.float32)
    repeated = tl.where(value > 0, tl.div_rn(value, tl.zeros_like(value) + repetition), value * repetition)
    value = tl.where(mark >= _SEEN, repeated, value)
    value = value - frequency * count - presence * (count > 0).to(tl.float32)
    tl.store(out + row * vocab + token, value, mask=inside)


@triton.jit
def _min_p_kernel(
    logits: tl.tensor,  # [R, V] float32
    parts: tl.tensor,  # as in rows.py
    below: tl.tensor,  # [R] float32: what is added to the greatest logit for the least that is kept; no number: all are
    out: tl.tensor,  # [R, V] float32
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    peak, _ = extent(parts, row, tl.num_programs(1), BLOCKS)
    least = peak + tl.load(below + row)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(logits + row * stride + token, mask=token < vocab, other=float("-inf"))
    tl.store(out + row * vocab + token, tl.where(value < least, float("-inf"), value), mask=token < vocab)


class TritonLogits:
    """LogitsOps for a GPU."""

    def keep_min_p(self, logits: Tensor, temperature: Tensor, min_p: Tensor) -> Tensor:
        rows, vocab = logits.shape
        out = torch.empty((rows, vocab), dtype=torch.float32, device=logits.device)
        if rows:
            grid, block = row_grid(logits)
            _min_p_kernel[grid](
                logits,
                row_parts(logits),
                temperature * min_p.log(),
                out,
                logits.stride(0),
                vocab,
                BLOCK=block,
                BLOCKS=power_of_two(grid[1]),
                num_warps=8,
                **launch_options(logits),
            )
        return out

    def edit(self, logits: Tensor, edits: Sequence[Edits]) -> None:
        edit(logits, edits)

    def ban_words(self, logits: Tensor, tokens: Tensor, banned: Sequence[BannedWords]) -> None:
        ban_words(logits, tokens, banned)

    def end_thinking(self, logits: Tensor, tokens: Tensor, thinking: Sequence[Thinking]) -> None:
        end_thinking(logits, tokens, thinking)

    def penalize(self, logits: Tensor, history: History, penalties: Tensor) -> Tensor:
        rows, vocab = logits.shape
        marks = torch.zeros(rows, vocab, dtype=torch.int32, device=logits.device)
        out = torch.empty_like(marks, dtype=torch.float32)
        tokens, options = history.tokens, launch_options(logits)
        if rows and tokens.shape[1]:
            _mark_kernel[(rows, triton.cdiv(tokens.shape[1], _BLOCK))](
                tokens, history.prompts, history.lengths, marks, tokens.stride(0), vocab, BLOCK=_BLOCK, **options
            )
        if rows:
            _penalize_kernel[(rows, triton.cdiv(vocab, _BLOCK))](
                logits,
                marks,
                penalties.contiguous(),
                out,
                logits.stride(0),
                vocab,
                BLOCK=_BLOCK,
                enable_fp_fusion=False,  # as in `ref`, to the bit
                **options,
            )
        return out

    def logprobs(self, scores: Tensor, chosen: Tensor, top: int, ids: Tensor | None, normalize: bool) -> Tensor:
        rows = len(scores)
        totals, places = ranks(scores, chosen)
        others = scores.topk(top, dim=1).indices if ids is None else ids.expand(rows, -1)
        picked = torch.cat((chosen.unsqueeze(1), others), dim=1)
        values = scores.gather(1, picked)
        if normalize:
            values = values - totals.unsqueeze(1)
        return torch.cat((picked.to(torch.int32), values.view(torch.int32), places.unsqueeze(1)), dim=1)
