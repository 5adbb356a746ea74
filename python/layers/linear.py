"""Linear layers, whole or shared among ranks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart
from octavo.layers.formats import DenseFormat
from octavo.layers.sources import ReorderedSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from octavo.layers.base import Build, TensorSource
    from octavo.layers.formats import WeightFormat

__all__ = ["ColumnLinear", "RowLinear"]


class ColumnLinear(Layer):
    """One or more matrices of the same input, stacked, their outputs shared among ranks.

    `outputs` gives for each matrix its name ("q", "k", "v"; "gate", "up"), its whole number of outputs and the outputs
    that this rank holds. The result is this rank's outputs, matrix after matrix. `orders` names matrices whose outputs
    lie in another order in a checkpoint: see ReorderedSource.
    """

    def __init__(
        self,
        inputs: int,
        outputs: dict[str, tuple[int, range]],
        bias: bool,
        build: Build,
        orders: Mapping[str, Tensor] | None = None,  # [group] int64 each
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._orders = orders or {}
        self._size = sum(len(mine) for _, mine in outputs.values())
        self._format: WeightFormat = DenseFormat(self._size, inputs, build)
        self._bias = torch.zeros(self._size, dtype=build.dtype, device=build.device) if bias else None  # [out]

    def parts(self) -> dict[str, WeightPart]:
        parts, at = {}, 0
        for name, (total, mine) in self._outputs.items():
            parts[f"{name}.weight"] = WeightPart((total, self._inputs), self._weight_loader(name, mine, at))
            if self._bias is not None:
                parts[f"{name}.bias"] = WeightPart((total,), self._bias_loader(name, mine, at), "zeros")
            at += len(mine)
        return parts

    def own_bytes(self) -> int:
        return self._format.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, ColumnLinear)
        self._format.adopt(other._format)
        if self._bias is not None and other._bias is not None:
            self._bias.copy_(other._bias)

    def finish(self) -> None:
        self._format.pack()

    def __call__(self, x: Tensor) -> Tensor:  # [T, in] dtype -> [T, out of this rank] dtype
        return self._format.apply(x, self._bias)

    def _weight_loader(self, name: str, rows: range, at: int) -> Callable[[TensorSource], None]:
        return lambda source: self._format.load(self._ordered(name, source), rows, range(self._inputs), at)

    def _bias_loader(self, name: str, rows: range, at: int) -> Callable[[TensorSource], None]:
        def load(source: TensorSource) -> None:
            assert self._bias is not None
            self._bias[at : at + len(rows)] = self._ordered(name, source).read(slice(rows.start, rows.stop))

        return load

    def _ordered(self, name: str, source: TensorSource) -> TensorSource:
        order = self._orders.get(name)
        return source if order is None else ReorderedSource(source, order)


class RowLinear(Layer):
    """One matrix whose inputs are shared among ranks; the result is summed over them, the same on each."""

    def __init__(self, inputs: int, mine: range, outputs: int, bias: bool, build: Build) -> None:
        self._shape = (outputs, inputs)
        self._mine = mine
        self._group = build.group
        self._format: WeightFormat = DenseFormat(outputs, len(mine), build)
        self._bias = torch.zeros(outputs, dtype=build.dtype, device=build.device) if bias else None  # [out]

    def parts(self) -> dict[str, WeightPart]:
        parts = {"weight": WeightPart(self._shape, self._load_weight)}
        if self._bias is not None:
            parts["bias"] = WeightPart(self._shape[:1], self._load_bias, "zeros")
        return parts

    def own_bytes(self) -> int:
        return self._format.nbytes + (0 if self._bias is None else self._bias.nbytes)

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, RowLinear)
        self._format.adopt(other._format)
        if self._bias is not None and other._bias is not None:
            self._bias.copy_(other._bias)

    def finish(self) -> None:
        self._format.pack()

    @property
    def sum_rows(self) -> int:
        """From how many rows on a product is best added to the residual at once: see LinearOps."""
        return self._format.sum_rows if self._group.size == 1 and self._bias is None else sys.maxsize

    def __call__(
        self, x: Tensor, onto: Tensor | None = None
    ) -> Tensor:  # [T, in of this rank], [T, out] dtype -> [T, out] dtype
        """Return the product, or its sum with `onto`, which may be overwritten: only from `sum_rows` rows on."""
        if onto is not None:
            return self._format.apply_onto(x, onto)
        if self._group.size == 1:
            return self._format.apply(x, self._bias)
        total = self._group.all_reduce(self._format.apply(x, None))
        return total if self._bias is None else total + self._bias

    def _load_weight(self, source: TensorSource) -> None:
        self._format.load(source, range(self._shape[0]), self._mine, 0)

    def _load_bias(self, source: TensorSource) -> None:
        assert self._bias is not None
        self._bias.copy_(source.read(slice(None)))
