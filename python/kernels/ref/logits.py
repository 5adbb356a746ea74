"""Changes to logits that few requests ask for, and log probabilities, in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.kernels.api import History
    from octavo.kernels.logit_rows import BannedWords, Edits, Markers, Thinking

__all__ = ["RefLogits"]


class RefLogits:
    """LogitsOps in torch, on any device."""

    def penalize(
        self, logits: Tensor, history: History, penalties: Tensor
    ) -> Tensor:  # [R, V] float32, [R, 3] float32 -> [R, V] float32
        rows, vocab = logits.shape
        place = torch.arange(history.tokens.shape[1], device=logits.device)  # [L]
        known = place < history.lengths.unsqueeze(1)
        said = known & (place >= history.prompts.unsqueeze(1))
        ids = history.tokens.to(torch.int64)
        # One column more takes what does not count.
        counts = logits.new_zeros(rows, vocab + 1)
        counts = counts.scatter_add_(1, ids.where(said, vocab), torch.ones_like(ids, dtype=counts.dtype))[:, :vocab]
        seen = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=logits.device)
        seen = seen.scatter_(1, ids.where(known, vocab), True)[:, :vocab]
        repetition, frequency, presence = (part.unsqueeze(1) for part in penalties.unbind(1))
        repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
        return torch.where(seen, repeated, logits) - frequency * counts - presence * (counts > 0)

    def keep_min_p(
        self, logits: Tensor, temperature: Tensor, min_p: Tensor
    ) -> Tensor:  # [R, V] float32, [R] float32, [R] float32 -> [R, V] float32
        # p >= min_p * p_max, in logits; where temperature and min_p are 0 the floor is no number and keeps all.
        floor = logits.amax(dim=1) + temperature * min_p.log()
        return logits.masked_fill(logits < floor.unsqueeze(1), float("-inf"))

    def edit(self, logits: Tensor, edits: Sequence[Edits]) -> None:  # [R, V] float32
        for one in edits:
            row = logits[one.row]
            if one.allowed is not None:
                kept = torch.full_like(row, float("-inf"))
                kept[one.allowed] = row[one.allowed]
                row.copy_(kept)
            if one.bias_ids is not None and one.biases is not None:
                row.index_add_(0, one.bias_ids, one.biases)
            if one.banned is not None:
                row.index_fill_(0, one.banned, float("-inf"))

    def ban_words(
        self, logits: Tensor, tokens: Tensor, banned: Sequence[BannedWords]
    ) -> None:  # [R, V] float32, [S, L] int32
        for one in banned:
            width = one.words.shape[1] - 1
            have = min(width, one.said.length - one.said.prompt_len)
            said = torch.full((width,), -1, dtype=torch.int64, device=logits.device)  # -1 where there are fewer
            if have:
                said[width - have :] = tokens[one.said.slot, one.said.length - have : one.said.length]
            _ban(logits[one.said.row], said, one.words)

    def end_thinking(
        self, logits: Tensor, tokens: Tensor, thinking: Sequence[Thinking]
    ) -> None:  # [R, V] float32, [S, L] int32
        for one in thinking:
            mine = tokens[one.said.slot, : one.said.length].to(torch.int64)
            row = logits[one.said.row]
            row.copy_(_end_thinking(row, mine, one.said.prompt_len, one.markers, one.budget))

    def logprobs(
        self, scores: Tensor, chosen: Tensor, top: int, ids: Tensor | None, normalize: bool
    ) -> Tensor:  # [R, V] float32, [R] int64, [n] int64 -> [R, 2 W + 1] int32
        if normalize:
            scores = scores.log_softmax(dim=1)
        mine = chosen.unsqueeze(1)
        rank = (scores > scores.gather(1, mine)).sum(dim=1, keepdim=True) + 1
        others = scores.topk(top, dim=1).indices if ids is None else ids.expand(len(scores), -1)
        picked = torch.cat((mine, others), dim=1)
        values = scores.gather(1, picked).view(torch.int32)
        return torch.cat((picked.to(torch.int32), values, rank.to(torch.int32)), dim=1)


def _ends_of(tokens: Tensor, marker: Tensor) -> Tensor:  # [L] int64, [m] int64 -> [L] bool
    """Return where an occurrence of `marker` ends."""
    found = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    if len(marker) <= len(tokens):
        found[len(marker) - 1 :] = (tokens.unfold(0, len(marker), 1) == marker).all(dim=1)
    return found


def _ban(logits: Tensor, said: Tensor, words: Tensor) -> None:  # [V] float32, [m - 1], [n, m] int64
    begin, last = words[:, :-1], words[:, -1]
    said_so = ((begin == said) | (begin == -2)).all(dim=1)
    # A sum, because several words may end in one token.
    logits.index_add_(0, last, torch.where(said_so, float("-inf"), 0.0).to(logits.dtype))


def _end_thinking(
    logits: Tensor, tokens: Tensor, prompt_len: int, markers: Markers, budget: int
) -> Tensor:  # [V] float32, [L] int64 -> [V] float32
    end = markers.end
    place = torch.arange(len(tokens), device=tokens.device)
    ends = _ends_of(tokens, markers.close)
    opened = torch.where(_ends_of(tokens, markers.start), place + 1, 0).cummax(dim=0).values
    closed = torch.where(ends, place + 1, 0).cummax(dim=0).values
    within = opened > closed  # behind this token a block is open
    thought = torch.zeros_like(within)
    thought[1:] = within[:-1]
    for marker, found in ((markers.close, ends), (end, _ends_of(tokens, end))):  # what ends a block is no thought
        for back in range(min(len(marker), len(tokens))):
            thought[: len(tokens) - back] &= ~found[back:]
    # Blocks that the prompt has closed belong to earlier turns.
    begin = torch.where(within[prompt_len - 1], opened[prompt_len - 1], prompt_len)
    spent = (thought & (place >= begin)).sum()
    forced = end[0]
    for have in range(1, min(len(end), len(tokens) + 1)):
        forced = torch.where((tokens[-have:] == end[:have]).all(), end[have], forced)
    only = torch.full_like(logits, float("-inf")).scatter(0, forced.unsqueeze(0), 0.0)
    return torch.where(within[-1] & (spent >= budget), only, logits)
