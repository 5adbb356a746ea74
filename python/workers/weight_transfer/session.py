"""A weight update in a worker: a second copy of the model, which takes in what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.models.base import Model
    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["MemorySource", "WeightSession"]


class MemorySource:
    """A TensorSource over a tensor in memory."""

    def __init__(self, tensor: Tensor) -> None:  # any shape, floating
        self._tensor = tensor
        self.shape = tuple(tensor.shape)

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        return self._tensor[rows] if columns is None else self._tensor[rows, columns]


class WeightSession:
    """Owns the copy until it is sealed. Until then the model that is served is not touched."""

    def __init__(self, copy: Model) -> None:
        """`copy` has the weights of now and is not finished."""
        self._copy = copy
        self._parts = copy.checkpoint()
        self._missing = {name for name, part in self._parts.items() if not part.optional}
        self._sealed = False

    @property
    def missing(self) -> int:
        """Weights that no update brought."""
        return len(self._missing)

    def check(self, tensors: Sequence[TensorDescription]) -> None:
        """Raise ControlError unless the model has weights of these names and shapes."""
        if self._sealed:
            raise ControlError("the weight update is being finished; it takes no more tensors", "conflict")
        for index, tensor in enumerate(tensors):
            name = self._copy.canonical(tensor.name)
            part = self._parts.get(name)
            if part is None and not self._copy.is_ignored(name):
                param = f"update_info.names.{index}"
                raise ControlError(f"'{param}': the model has no weight {tensor.name!r}", "invalid", param)
            if part is not None and part.shape != tensor.shape:
                param = f"update_info.shapes.{index}"
                shapes = f"{list(part.shape)}; got {list(tensor.shape)}"
                raise ControlError(f"'{param}': {tensor.name!r} has the shape {shapes}", "invalid", param)

    def load(self, given: str, tensor: Tensor) -> str | None:  # the shape that `check` saw
        """Take in a checked tensor. Returns its name without wrappers; None for one that the model ignores."""
        name = self._copy.canonical(given)
        part = self._parts.get(name)
        if part is None:
            return None
        part.load(MemorySource(tensor))
        self._missing.discard(name)
        return name

    def seal(self) -> Model:
        """Bring the copy into its final layout and return it. Once is enough: the second time nothing happens."""
        if not self._sealed:
            self._sealed = True
            for _, layer in self._copy.walk():
                layer.finish()
        return self._copy
