"""Weight formats: how a Linear's weight lies in memory and is applied. Quantisation and adapters are other formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from octavo.layers.sources import copy_matrix

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["DenseFormat", "WeightFormat"]


class WeightFormat(Protocol):
    """The weight of one Linear on this rank. Made empty; filled by `load`; `pack` once; then `apply`."""

    def load(self, source: TensorSource, rows: range, columns: range, at: int) -> None:
        """Read this rank's shard, `rows` by `columns` of the source, into the weight's rows from `at` on."""
        ...

    def adopt(self, other: WeightFormat) -> None:
        """Copy the weight of another of this kind and size, packed or not; this one is not packed yet."""
        ...

    def pack(self) -> None:
        """Bring the whole weight into the layout that `apply` wants."""
        ...

    @property
    def nbytes(self) -> int:
        """The weight's size."""
        ...

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], [out] dtype -> [T, out] dtype
        """Return x @ weight.T + bias."""
        ...

    @property
    def sum_rows(self) -> int:
        """As in LinearOps."""
        ...

    def apply_onto(self, x: Tensor, onto: Tensor) -> Tensor:  # [T, in], [T, out] dtype -> [T, out] dtype
        """Return onto + x @ weight.T; see LinearOps. May overwrite `onto`."""
        ...


class DenseFormat:
    """A plain matrix in the model's dtype."""

    def __init__(self, rows: int, columns: int, build: Build) -> None:
        self._ops = build.kernels.linear
        self._weight = torch.empty(rows, columns, dtype=build.dtype, device=build.device)  # [out, in]
        self._size_bytes = self._weight.nbytes
        self._packed = False

    def load(self, source: TensorSource, rows: range, columns: range, at: int) -> None:
        copy_matrix(source, self._weight[at : at + len(rows)], rows, columns)

    def adopt(self, other: WeightFormat) -> None:
        assert isinstance(other, DenseFormat)
        self._weight.copy_(self._ops.unpack(other._weight) if other._packed else other._weight)

    @property
    def nbytes(self) -> int:
        return self._size_bytes

    def pack(self) -> None:
        self._weight = self._ops.pack(self._weight)
        self._packed = True

    def apply(self, x: Tensor, bias: Tensor | None) -> Tensor:  # [T, in], [out] dtype -> [T, out] dtype
        return self._ops.apply(x, self._weight, bias)

    @property
    def sum_rows(self) -> int:
        return self._ops.sum_rows

    def apply_onto(self, x: Tensor, onto: Tensor) -> Tensor:  # [T, in], [T, out] dtype -> [T, out] dtype
        return self._ops.apply_onto(x, self._weight, onto)
