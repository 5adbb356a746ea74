"""The sampler: keeps how each slot wants its tokens drawn, and draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.kernels.api import SampleInputs
from octavo.kernels.ref.sample import keep_top_k, keep_top_p
from octavo.workers.sampling.extras import RowTokens, SlotExtras, process, slot_extras
from octavo.workers.sampling.logprobs import Packed, of_drawn
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import LogitsOps, SampleOps
    from octavo.wire.frontend import SamplingParams

__all__ = ["Draws", "Sampler"]


@dataclass(frozen=True, slots=True)
class Draws:
    """What a step drew."""

    tokens: Tensor  # [R] int64
    logprobs: list[Packed]  # of the rows that asked for them; owners count the rows


class Sampler:
    """Sampling parameters by slot, on the host; the rows that draw are gathered for each step."""

    def __init__(
        self, slots: int, ops: SampleOps, logits: LogitsOps, device: str, logprobs_mode: str = "raw_logprobs"
    ) -> None:
        """`logprobs_mode`: as in wire.worker.Init."""
        self._ops = ops
        self._logits = logits
        self._processed = logprobs_mode.startswith("processed")
        self._normalize = logprobs_mode.endswith("logprobs")
        self._device = device
        self._temperature = np.zeros(slots, dtype=np.float32)  # [S]
        self._top_k = np.zeros(slots, dtype=np.int64)  # [S]
        self._top_p = np.ones(slots, dtype=np.float32)  # [S]
        self._seed = np.zeros(slots, dtype=np.uint64)  # [S]
        self._special = np.zeros(slots, dtype=np.bool_)  # [S] rows with extras that concern the draw
        self._extras: list[SlotExtras | None] = [None] * slots

    def take(self, slot: int, params: SamplingParams, prompt_len: int, named: bool = True) -> None:
        """Keep the parameters of the request that took `slot`. `named`: the ids of its prompt mean something."""
        self._temperature[slot] = params.temperature
        self._top_k[slot] = params.top_k
        self._top_p[slot] = params.top_p
        self._seed[slot] = params.seed
        extras = slot_extras(params, prompt_len, self._device, named)
        self._extras[slot] = extras
        self._special[slot] = extras is not None and (extras.changes or extras.wants_logprobs)

    def prompt_logprobs(self, slot: int) -> int | None:
        """Return how many log probabilities each token of a slot's prompt gets beside its own; -1: all, None: none."""
        extras = self._extras[slot]
        return None if extras is None else extras.params.prompt_logprobs

    @property
    def normalize(self) -> bool:
        """Whether log probabilities are told, not logits."""
        return self._normalize

    def plain(self, slots: np.ndarray[Any, Any]) -> bool:  # [R]
        """Return whether no row of `slots` restricts what it draws from or has extras."""
        if self._special[slots].any():
            return False
        limited = (self._top_k[slots] > 0) | (self._top_p[slots] < 1)
        return not (limited & (self._temperature[slots] > 0)).any()

    def temperatures(self, slots: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:  # [R] -> [R]
        """Return the temperature of each row."""
        temperatures: np.ndarray[Any, np.dtype[np.float32]] = self._temperature[slots]
        return temperatures

    def seeds(self, slots: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:  # [R] -> [R]
        """Return the bits of each row's seed."""
        seeds: np.ndarray[Any, np.dtype[np.int64]] = self._seed[slots].view(np.int64)
        return seeds

    def draw(
        self, logits: Tensor, slots: np.ndarray[Any, Any], positions: np.ndarray[Any, Any], tokens: Tensor
    ) -> Draws:  # [R, V] dtype, [R], [R], [S, L] int32
        """Return a token for each row of `logits`.

        positions: the index in its sequence that each token will have, which is the number of those known. tokens: of
        all slots. A token depends on the row's logits, parameters and tokens so far alone: not on other rows, on what
        was drawn before, or on how often the sequence was computed again.
        """
        which = np.flatnonzero(self._special[slots])
        if not len(which):
            return Draws(self._ops.sample(logits, self._inputs(slots, positions)), [])
        if len(which) < len(slots):
            drawn = self._ops.sample(logits, self._inputs(slots, positions))
        else:
            drawn = torch.empty(len(slots), dtype=torch.int64, device=logits.device)
        at = self._move(which)
        rows = RowTokens(tokens, slots[which], positions[which])
        mine, logprobs = self._draw_special(logits.index_select(0, at).to(torch.float32), rows, which.tolist())
        return Draws(drawn.index_copy(0, at, mine), logprobs)

    def _draw_special(
        self, logits: Tensor, rows: RowTokens, owners: list[int]
    ) -> tuple[Tensor, list[Packed]]:  # [R, V] float32, its own -> [R] int64
        extras = [extras for slot in rows.slots.tolist() if (extras := self._extras[slot]) is not None]
        told = any(slot.wants_logprobs for slot in extras)
        raw = logits.clone() if told and not self._processed else logits
        changed = process(logits, extras, rows, self._logits)
        inputs = self._inputs(rows.slots, rows.lengths)
        drawn = self._ops.sample(changed, inputs)
        if not told:
            return drawn, []
        scores = _scores(changed, inputs) if self._processed else raw
        return drawn, of_drawn(scores, extras, owners, drawn, self._normalize, self._logits)

    def _inputs(self, slots: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]) -> SampleInputs:  # [R], [R]
        temperature, top_k, top_p = self._temperature[slots], self._top_k[slots], self._top_p[slots]
        drawing = temperature > 0
        return SampleInputs(
            temperature=self._move(temperature),
            top_k=self._move(top_k),
            top_p=self._move(top_p),
            seed=self._move(self._seed[slots].view(np.int64)),
            position=self._move(positions.astype(np.int64)),
            all_greedy=not drawing.any(),
            any_top_k=bool((drawing & (top_k > 0)).any()),
            any_top_p=bool((drawing & (top_p < 1)).any()),
        )

    def _move(self, values: np.ndarray[Any, Any]) -> Tensor:  # the same shape and dtype, on the device
        return upload(values, self._device)


def _scores(logits: Tensor, inputs: SampleInputs) -> Tensor:  # [R, V] float32 -> [R, V] float32
    """Return the scores to which noise is added; of greedy rows the logits as they are."""
    greedy = inputs.temperature == 0
    scores = logits / torch.where(greedy, 1.0, inputs.temperature).unsqueeze(1)
    if inputs.any_top_k:
        scores = keep_top_k(scores, inputs.top_k.masked_fill(greedy, 0))
    if inputs.any_top_p:
        scores = keep_top_p(scores, inputs.top_p.masked_fill(greedy, 1.0))
    return scores
