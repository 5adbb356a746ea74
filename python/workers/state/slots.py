"""Slots: one row for each request, for the request's whole life. Rows never move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import ProtocolError
from octavo.workers.state.staged import StagedArray

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import StateOps
    from octavo.wire.worker import NewRow

__all__ = ["Slots"]


class Slots:
    """Token history, on the device, and counters, on the host, of every slot.

    Invariant: 0 <= computed <= length <= max_model_len + 1 in slots that are taken.
    """

    def __init__(self, slots: int, max_model_len: int, ops: StateOps, device: str) -> None:
        # One more than the context: the last token drawn has a place, though nothing ever reads it.
        self._tokens = StagedArray(slots, max_model_len + 1, ops, device)
        self._lengths = StagedArray(slots, 1, ops, device)
        self._ops = ops
        self.taken = np.zeros(slots, dtype=np.bool_)  # [S]
        self.generation = np.zeros(slots, dtype=np.int32)  # [S]
        self.computed = np.zeros(slots, dtype=np.int64)  # [S] tokens whose KV is in the cache
        self.prompt = np.zeros(slots, dtype=np.int64)  # [S] tokens that the client sent
        self.length = np.zeros(slots, dtype=np.int64)  # [S] tokens known, those that were drawn included

    @property
    def tokens(self) -> Tensor:  # [S, max_model_len + 1] int32, device
        """Every slot's tokens, valid up to its length."""
        return self._tokens.array

    @property
    def lengths(self) -> Tensor:  # [S] int32, device
        """Every slot's tokens known, as `length` on the host."""
        return self._lengths.array[:, 0]

    def release(self, slots: list[int]) -> None:
        """Give slots back."""
        for slot in slots:
            self._require(slot, taken=True)
            self.taken[slot] = False

    def take(self, row: NewRow) -> None:
        """Let a request take its slot. Its tokens are on the device after `apply`."""
        self._require(row.slot, taken=False)
        tokens = np.frombuffer(row.tokens, dtype="<i4").astype(np.int32, copy=False)
        if not 0 <= row.computed < len(tokens) < self._tokens.array.shape[1]:
            raise ProtocolError(f"slot {row.slot}: {row.computed} computed of {len(tokens)} tokens cannot be")
        self.taken[row.slot] = True
        self.generation[row.slot] = row.generation
        self.computed[row.slot] = row.computed
        self.prompt[row.slot] = row.prompt_len
        self.length[row.slot] = len(tokens)
        self._tokens.stage(row.slot, 0, tokens)
        self._lengths.stage(row.slot, 0, np.array([len(tokens)], dtype=np.int32))

    def apply(self) -> None:
        """Bring staged tokens to the device."""
        self._tokens.apply()
        self._lengths.apply()

    def advance(self, slots: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> None:
        """Note that `counts` more tokens of `slots` are computed."""
        self.computed[slots] += counts

    def append(self, slots: np.ndarray[Any, Any], slots_dev: Tensor, tokens: Tensor) -> None:
        """Add one drawn token to each of `slots`.  # [R], [R] int64, [R] int64"""
        self._ops.append(self.tokens, self.lengths, slots_dev, tokens)
        self.appended(slots)

    def appended(self, slots: np.ndarray[Any, Any]) -> None:
        """Note that the device added one drawn token to each of `slots`.  # [R]"""
        self.length[slots] += 1

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        taken = self.taken
        assert (self.computed[taken] >= 0).all()
        assert (self.computed[taken] <= self.length[taken]).all()
        assert (self.length[taken] <= self.tokens.shape[1]).all()

    def _require(self, slot: int, taken: bool) -> None:
        if not 0 <= slot < len(self.taken) or self.taken[slot] != taken:
            state = "taken" if taken else "free"
            raise ProtocolError(f"the plan needs slot {slot} to be {state}, which it is not")
