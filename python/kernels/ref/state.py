"""Reads and writes of the slots' arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefState"]


class RefState:
    """StateOps in torch."""

    def scatter(self, target: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        target[rows, columns] = values

    def gather_ids(self, tokens: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        return tokens[slots, positions]
