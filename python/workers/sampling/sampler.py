"""The sampler: keeps how each slot wants its tokens drawn, and draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.kernels.api import SampleInputs
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import SampleOps
    from octavo.wire.frontend import SamplingParams

__all__ = ["Sampler"]


class Sampler:
    """Sampling parameters by slot, on the host; the rows that draw are gathered for each step."""

    def __init__(self, slots: int, ops: SampleOps, device: str) -> None:
        self._ops = ops
        self._device = device
        self._temperature = np.zeros(slots, dtype=np.float32)  # [S]
        self._top_k = np.zeros(slots, dtype=np.int64)  # [S]
        self._top_p = np.ones(slots, dtype=np.float32)  # [S]
        self._seed = np.zeros(slots, dtype=np.uint64)  # [S]

    def take(self, slot: int, params: SamplingParams) -> None:
        """Keep the parameters of the request that took `slot`."""
        self._temperature[slot] = params.temperature
        self._top_k[slot] = params.top_k
        self._top_p[slot] = params.top_p
        self._seed[slot] = params.seed

    def plain(self, slots: np.ndarray[Any, Any]) -> bool:  # [R]
        """Return whether no row of `slots` restricts what it draws from."""
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
        self, logits: Tensor, slots: np.ndarray[Any, Any], positions: np.ndarray[Any, Any]
    ) -> Tensor:  # [R, V] float32, [R], [R] -> [R] int64
        """Return a token for each row of `logits`. `positions`: the index in its sequence that each token will have.

        The token depends on the row's logits, parameters and position alone: not on other rows, on what was drawn
        before, or on how often the sequence was computed again.
        """
        temperature, top_k, top_p = self._temperature[slots], self._top_k[slots], self._top_p[slots]
        drawing = temperature > 0
        inputs = SampleInputs(
            temperature=self._move(temperature),
            top_k=self._move(top_k),
            top_p=self._move(top_p),
            seed=self._move(self._seed[slots].view(np.int64)),
            position=self._move(positions.astype(np.int64)),
            all_greedy=not drawing.any(),
            any_top_k=bool((drawing & (top_k > 0)).any()),
            any_top_p=bool((drawing & (top_p < 1)).any()),
        )
        return self._ops.sample(logits, inputs)

    def _move(self, values: np.ndarray[Any, Any]) -> Tensor:  # the same shape and dtype, on the device
        return upload(values, self._device)
