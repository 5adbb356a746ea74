"""Tensors of safetensors files, read slice by slice from the mapped file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from safetensors import safe_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from octavo.layers.base import TensorSource

__all__ = ["SafetensorsSource", "safetensors_sources"]


class SafetensorsSource:
    """One tensor of an open file."""

    def __init__(self, piece: Any) -> None:
        self._piece = piece
        self.shape: tuple[int, ...] = tuple(piece.get_shape())

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)] dtype of the file
        return cast("Tensor", self._piece[rows] if columns is None else self._piece[rows, columns])


def safetensors_sources(files: tuple[Path, ...]) -> Iterator[tuple[str, TensorSource]]:
    """Yield every tensor of `files` by name. A file is mapped as long as one of its tensors is referred to."""
    for path in files:
        file: Any = safe_open(path, framework="pt", device="cpu")
        for name in file.keys():  # noqa: SIM118 - no mapping
            yield name, SafetensorsSource(file.get_slice(name))
