"""What single slots ask for beyond temperature, top-k and top-p: kept on the device, applied to their rows alone.

In this order, which is vLLM's: allowed ids, biases, min_tokens, penalties, bad words, thinking budget, min-p; then come
temperature, top-k, top-p and the noise. All of it depends on the slot's tokens so far and on nothing else, so that a
request that is computed again draws the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.kernels.api import History
from octavo.kernels.logit_rows import BannedWords, Edits, Markers, Said, Thinking
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import LogitsOps
    from octavo.wire.frontend import SamplingExtras, SamplingParams, ThinkingBudget

__all__ = ["RowTokens", "SlotExtras", "process", "slot_extras"]

Ints = np.ndarray[Any, np.dtype[Any]]

#: Stands in front of bad words that are shorter than the longest.
_ANY = -2


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens that some rows have so far."""

    tokens: Tensor  # [S, L] int32, device: of all slots
    slots: Ints  # [R] int64
    lengths: Ints  # [R] int64: tokens of each row


@dataclass(frozen=True, slots=True)
class SlotExtras:
    """One request's extras, with what they name on the device."""

    params: SamplingExtras
    prompt_len: int
    named: bool  # whether the ids of the prompt mean something
    changes: bool  # whether any of it changes what is drawn
    temperature: float
    allowed: Tensor | None  # [n] int64
    bias_ids: Tensor | None  # [n] int64
    biases: Tensor | None  # [n] float32
    stop_ids: Tensor | None  # [n] int64, with min_tokens
    words: Tensor | None  # [n, m] int64, shorter ones with _ANY in front
    markers: Markers | None  # with a thinking budget
    logprob_ids: Tensor | None  # [n] int64

    @property
    def penalizes(self) -> bool:
        """Whether there are penalties."""
        p = self.params
        return p.repetition_penalty != 1 or p.frequency_penalty != 0 or p.presence_penalty != 0

    @property
    def wants_logprobs(self) -> bool:
        """Whether drawn tokens come with log probabilities."""
        return self.params.logprobs is not None or self.logprob_ids is not None


def slot_extras(params: SamplingParams, prompt_len: int, device: str, named: bool = True) -> SlotExtras | None:
    """Return what a slot keeps of a request, or None where it asks for nothing that concerns a worker.

    `named`: the ids of the prompt mean something.
    """
    extras = params.extras
    if extras is None:
        return None
    thinking = extras.thinking

    def ids(packed: bytes) -> Tensor | None:
        return _upload_ids(packed, device) if packed else None

    stops = np.array(params.stop_token_ids, dtype=np.int64)
    made = SlotExtras(
        params=extras,
        prompt_len=prompt_len,
        named=named,
        changes=False,
        temperature=params.temperature,
        allowed=ids(extras.allowed_token_ids),
        bias_ids=ids(extras.bias_ids),
        biases=upload(np.frombuffer(extras.biases, dtype="<f4").copy(), device) if extras.biases else None,
        stop_ids=upload(stops, device) if extras.min_tokens and len(stops) else None,
        words=upload(_words(extras.bad_words), device) if extras.bad_words else None,
        markers=_markers(thinking, device) if thinking else None,
        logprob_ids=ids(extras.logprob_token_ids),
    )
    parts = (made.allowed, made.bias_ids, made.stop_ids, made.words, made.markers)
    changes = made.penalizes or extras.min_p > 0 or any(part is not None for part in parts)
    if not changes and not made.wants_logprobs and extras.prompt_logprobs is None:
        return None
    return SlotExtras(**{name: getattr(made, name) for name in SlotExtras.__slots__} | {"changes": changes})


def process(
    logits: Tensor, extras: list[SlotExtras], rows: RowTokens, ops: LogitsOps
) -> Tensor:  # [R, V] float32 -> [R, V] float32
    """Return the logits from which tokens are drawn. `logits` may be changed."""
    edits = [edit for index, slot in enumerate(extras) if (edit := _edits(index, slot, int(rows.lengths[index])))]
    if edits:
        ops.edit(logits, edits)
    logits = _penalties(logits, extras, rows, ops)
    _by_history(logits, extras, rows, ops)
    min_p = np.array([slot.params.min_p for slot in extras], dtype=np.float32)
    if min_p.any():
        heat = np.array([slot.temperature for slot in extras], dtype=np.float32)
        device = str(logits.device)
        logits = ops.keep_min_p(logits, upload(heat, device), upload(min_p, device))
    return logits


def _edits(index: int, slot: SlotExtras, length: int) -> Edits | None:
    """Return what names token ids: the ids that are allowed, biases, ends that come too early."""
    early = length - slot.prompt_len < slot.params.min_tokens
    stops = slot.stop_ids if early else None
    if slot.allowed is None and slot.bias_ids is None and stops is None:
        return None
    return Edits(index, slot.allowed, slot.bias_ids, slot.biases, stops)


def _penalties(logits: Tensor, extras: list[SlotExtras], rows: RowTokens, ops: LogitsOps) -> Tensor:
    which = [
        index
        for index, slot in enumerate(extras)
        if slot.penalizes and (slot.named or rows.lengths[index] > slot.prompt_len)
    ]
    if not which:
        return logits
    device = str(logits.device)
    strengths = [
        (extras[i].params.repetition_penalty, extras[i].params.frequency_penalty, extras[i].params.presence_penalty)
        for i in which
    ]
    places = np.array(which, dtype=np.int64)
    lengths = rows.lengths[places]
    slots = upload(rows.slots[places], device)
    tokens = rows.tokens[:, : int(lengths.max())].index_select(0, slots)
    for row, index in enumerate(which):
        if not extras[index].named:  # the last token, which is penalized anyway, stands for those without an id
            tokens[row, : extras[index].prompt_len] = tokens[row, int(lengths[row]) - 1]
    history = History(
        tokens=tokens,
        prompts=upload(np.array([extras[i].prompt_len for i in which], dtype=np.int64), device),
        lengths=upload(lengths, device),
    )
    at = upload(places, device)
    changed = ops.penalize(logits[at], history, upload(np.array(strengths, dtype=np.float32), device))
    return logits.index_copy(0, at, changed)


def _by_history(logits: Tensor, extras: list[SlotExtras], rows: RowTokens, ops: LogitsOps) -> None:
    """Apply what looks at the last tokens: bad words and the end of thoughts."""
    banned, thinking = [], []
    for index, slot in enumerate(extras):
        if slot.words is None and slot.markers is None:
            continue
        said = Said(index, int(rows.slots[index]), slot.prompt_len, int(rows.lengths[index]))
        if slot.words is not None:
            banned.append(BannedWords(said, slot.words))
        if slot.markers is not None and slot.params.thinking is not None:
            thinking.append(Thinking(said, slot.markers, slot.params.thinking.budget))
    if banned:
        ops.ban_words(logits, rows.tokens, banned)
    if thinking:
        ops.end_thinking(logits, rows.tokens, thinking)


def _markers(thinking: ThinkingBudget, device: str) -> Markers:
    start, end, close = (
        _upload_ids(packed, device) for packed in (thinking.start, thinking.end, thinking.close or thinking.end)
    )
    return Markers(start, end, close)


def _upload_ids(packed: bytes, device: str) -> Tensor:  # -> [n] int64
    return upload(np.frombuffer(packed, dtype="<i4").astype(np.int64), device)


def _words(words: tuple[bytes, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:  # [n, m]
    ids = [np.frombuffer(word, dtype="<i4") for word in words]
    table = np.full((len(ids), max(len(word) for word in ids)), _ANY, dtype=np.int64)
    for row, word in zip(table, ids, strict=True):
        row[len(row) - len(word) :] = word
    return table
