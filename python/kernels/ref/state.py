"""Reads and writes of the slots' arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefState"]


class RefState:
    """StateOps in torch."""

    def scatter(
        self, target: Tensor, rows: Tensor, columns: Tensor, values: Tensor
    ) -> None:  # [S, L] int32, [n] int64, [n] int64, [n] int32
        target[rows, columns] = values

    def gather_ids(
        self, tokens: Tensor, slots: Tensor, positions: Tensor
    ) -> Tensor:  # [S, L] int32, [T] int64, [T] int64 -> [T] int32
        return tokens[slots, positions]

    def append(
        self, tokens: Tensor, lengths: Tensor, slots: Tensor, sampled: Tensor
    ) -> None:  # [S, L] int32, [S] int32, [R] int64, [R] int64
        tokens[slots, lengths[slots].long()] = sampled.to(tokens.dtype)
        lengths[slots] += 1
