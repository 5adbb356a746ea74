"""Changes to a device array, collected on the host and applied by one kernel."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import StateOps

__all__ = ["StagedArray"]


class StagedArray:
    """A [slots, length] int32 array on the device. Later changes to an element win over earlier ones."""

    def __init__(self, slots: int, length: int, ops: StateOps, device: str) -> None:
        self.array: Tensor = torch.zeros(slots, length, dtype=torch.int32, device=device)  # [S, L]
        self._ops = ops
        self._device = device
        self._changes: list[tuple[int, int, np.ndarray[Any, np.dtype[np.int32]]]] = []

    def stage(self, row: int, start: int, values: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Note that elements `start` … of `row` become `values`. Nothing changes before `apply`."""
        self._changes.append((row, start, values))

    def apply(self) -> None:
        """Write what was staged."""
        if not self._changes:
            return
        rows = np.concatenate([np.full(len(values), row, dtype=np.int64) for row, _, values in self._changes])
        columns = np.concatenate([np.arange(at, at + len(v), dtype=np.int64) for _, at, v in self._changes])
        values = np.concatenate([values for _, _, values in self._changes])
        overlapping = _overlap([(row, at, at + len(v)) for row, at, v in self._changes])
        self._changes.clear()
        if overlapping:
            # Scatter order is not defined on every device: of two changes to one place only the last may go.
            places = rows * self.array.shape[1] + columns
            last = len(places) - 1 - np.unique(places[::-1], return_index=True)[1]
            rows, columns, values = rows[last], columns[last], values[last]
        moved = [upload(part, self._device) for part in (rows, columns, values)]
        self._ops.scatter(self.array, *moved)


def _overlap(changes: list[tuple[int, int, int]]) -> bool:
    """Tell whether two of the changes (row, start, end) have an element in common."""
    changes.sort()
    return any(
        row == next_row and end > next_start for (row, _, end), (next_row, next_start, _) in itertools.pairwise(changes)
    )
