"""Tensors of GGUF files: dequantised, with the names, shapes and row order of a Transformers checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.modelfiles.gguf_config import architecture_of, checkpoint_name, rotary_heads
from octavo.modelfiles.gguf_reader import read_gguf
from octavo.workers.loading.dequantise import BLOCKS, dequantise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from octavo.layers.base import TensorSource

__all__ = ["GgufSource", "gguf_sources"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class GgufSource:
    """One tensor of a mapped file, of one or two dimensions.

    `heads`: how many heads' rows the converter interleaved; 0: none. `offset`: what the file has too much.
    """

    def __init__(
        self, data: Bytes, kind: str, shape: tuple[int, ...], heads: int = 0, offset: float = 0.0
    ) -> None:  # [rows, bytes of a row] uint8
        self._data = data
        self._kind = kind
        self._offset = offset
        self.shape = shape
        self._rows: np.ndarray[Any, np.dtype[np.int64]] | None = None
        if heads:
            # Row (head, half, i) of the checkpoint is row (head, i, half) of the file.
            whole = np.arange(self.shape[0]).reshape(heads, -1, 2)
            self._rows = whole.swapaxes(1, 2).reshape(-1)

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        part = self._stored(rows, columns)
        return part - self._offset if self._offset else part

    def _stored(self, rows: slice, columns: slice | None) -> Tensor:
        data, kind = self._data, self._kind
        if len(self.shape) == 1:
            picked = dequantise(data, kind).flatten()  # a vector is one row of its file
            return picked[rows] if self._rows is None else picked[torch.from_numpy(self._rows)[rows]]
        wanted = rows if self._rows is None else self._rows[rows]
        if columns is None or columns == slice(None):
            return dequantise(data[wanted], kind)
        block, size = BLOCKS[kind]
        start, stop, _ = columns.indices(self.shape[1])
        first, last = start // block, -(-stop // block)
        some = dequantise(data[wanted, first * size : last * size], kind)
        return some[:, start - first * block : stop - first * block]


def gguf_sources(path: Path, config: dict[str, Any]) -> Iterator[tuple[str, TensorSource]]:
    """Yield every weight of the file by its name in a Transformers checkpoint. `config` is the file's, as resolved."""
    file = read_gguf(path)
    arch = architecture_of(file)
    for name, tensor in file.tensors.items():
        known = checkpoint_name(name, arch)
        if known is None:
            continue
        if "*" in known and len(tensor.shape) == 3:
            experts, rows, columns = tensor.shape
            each = tensor.data.reshape(experts, rows, -1)
            for expert in range(experts):
                yield known.replace("*", str(expert)), GgufSource(each[expert], tensor.type, (rows, columns))
            continue
        offset = arch.norm_offset if name.endswith("norm.weight") else 0.0
        heads = rotary_heads(name, arch, config)
        yield known, GgufSource(tensor.data, tensor.type, tensor.shape, heads, offset)
