"""Views of tensor sources: some rows of one, or its rows in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.layers.base import WeightPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.base import TensorSource

__all__ = ["ReorderedSource", "RowsSource", "copy_matrix", "stacked"]

#: Elements that are read at once: what is read lies in memory beside the weight that it is copied to.
_CHUNK = 1 << 22


def copy_matrix(source: TensorSource, target: Tensor, rows: range, columns: range) -> None:  # [rows, columns]
    """Copy a part of a matrix, some rows at a time, so that loading takes little memory besides the weights."""
    step = max(1, _CHUNK // max(1, len(columns)))
    width = slice(columns.start, columns.stop)
    for at in range(0, len(rows), step):
        some = rows[at : at + step]
        target[at : at + len(some)] = source.read(slice(some.start, some.stop), width)


class RowsSource:
    """The rows from `begin` on of another source, as many as `shape` says."""

    def __init__(self, source: TensorSource, begin: int, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._source = source
        self._begin = begin

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        start, stop, _ = rows.indices(self.shape[0])
        return self._source.read(slice(self._begin + start, self._begin + stop), columns)


class ReorderedSource:
    """Another source whose rows, in groups of `len(order)`, come in the order given: row i is its row order[i]."""

    def __init__(self, source: TensorSource, order: Tensor) -> None:  # [group] int64
        self.shape = source.shape
        self._source = source
        self._order = order

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        start, stop, _ = rows.indices(self.shape[0])
        group = len(self._order)
        first, last = start // group * group, -(-stop // group) * group
        part = self._source.read(slice(first, last), columns)
        whole = part.reshape(-1, group, *part.shape[1:])[:, self._order].flatten(0, 1)
        return whole[start - first : stop - first]


def stacked(parts: list[WeightPart]) -> WeightPart:
    """Return the one tensor of a checkpoint in which the rows of `parts` follow each other."""
    if len(parts) == 1:
        return parts[0]
    rows = sum(part.shape[0] for part in parts)
    return WeightPart((rows, *parts[0].shape[1:]), _loader(parts), parts[0].init)


def _loader(parts: list[WeightPart]) -> Callable[[TensorSource], None]:
    def load(source: TensorSource) -> None:
        begin = 0
        for part in parts:
            part.load(RowsSource(source, begin, part.shape))
            begin += part.shape[0]

    return load
