"""Tensors of GGUF files: dequantised, with the names and row order of a Transformers checkpoint.

Block formats: github.com/ggml-org/ggml, src/ggml-common.h. A Q4_1 block is 32 weights: scale d and minimum m (fp16),
then 16 bytes whose low nibbles are weights 0 … 15 and high nibbles 16 … 31; w = d q + m. A Q8_0 block is d (fp16) and
32 int8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.modelfiles.gguf_config import checkpoint_name, rotary_heads
from octavo.modelfiles.gguf_reader import GGML_TYPES, read_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from octavo.layers.base import TensorSource
    from octavo.modelfiles.gguf_reader import GgufTensor

__all__ = ["GgufSource", "dequantise", "gguf_sources"]

_BLOCKS = {name: (block, size) for name, block, size in GGML_TYPES.values()}


class GgufSource:
    """One tensor of a mapped file. `heads`: how many heads' rows the converter interleaved; 0: none."""

    def __init__(self, tensor: GgufTensor, heads: int) -> None:
        self._tensor = tensor
        self.shape = tensor.shape
        self._rows: np.ndarray[Any, np.dtype[np.int64]] | None = None
        if heads:
            # Row (head, half, i) of the checkpoint is row (head, i, half) of the file.
            whole = np.arange(self.shape[0]).reshape(heads, -1, 2)
            self._rows = whole.swapaxes(1, 2).reshape(-1)

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        data, kind = self._tensor.data, self._tensor.type
        if len(self.shape) == 1:
            picked = dequantise(data, kind).flatten()  # a vector is one row of its file
            return picked[rows] if self._rows is None else picked[torch.from_numpy(self._rows)[rows]]
        wanted = rows if self._rows is None else self._rows[rows]
        if columns is None:
            return dequantise(data[wanted], kind)
        block, size = _BLOCKS[kind]
        start, stop, _ = columns.indices(self.shape[1])
        first, last = start // block, -(-stop // block)
        some = dequantise(data[wanted, first * size : last * size], kind)
        return some[:, start - first * block : stop - first * block]


def gguf_sources(path: Path, config: dict[str, Any]) -> Iterator[tuple[str, TensorSource]]:
    """Yield every weight of the file by its name in a Transformers checkpoint. `config` is the file's, as resolved."""
    for name, tensor in read_gguf(path).tensors.items():
        known = checkpoint_name(name)
        if known is not None:
            yield known, GgufSource(tensor, rotary_heads(name, config))


def dequantise(data: np.ndarray[Any, np.dtype[np.uint8]], kind: str) -> Tensor:  # [rows, bytes] uint8 -> [rows, n]
    """Return the weights: float32, or the file's own dtype where it is a plain one."""
    # A copy: the mapped file is not writable, which torch would warn of.
    raw = torch.from_numpy(np.array(data, copy=True, order="C"))
    if kind == "F32":
        return raw.view(torch.float32)
    if kind == "F16":
        return raw.view(torch.float16)
    if kind == "BF16":
        return raw.view(torch.bfloat16)
    size = _BLOCKS[kind][1]
    blocks = raw.view(raw.shape[0], -1, size)
    if kind == "Q8_0":
        weights = _half(blocks, 0) * blocks[..., 2:].view(torch.int8).to(torch.float32)
    else:  # Q4_1
        packed = blocks[..., 4:]
        quants = torch.cat((packed & 15, packed >> 4), dim=-1).to(torch.float32)
        weights = (_half(blocks, 0) * quants).add_(_half(blocks, 2))
    return weights.view(raw.shape[0], -1)


def _half(blocks: Tensor, at: int) -> Tensor:  # [rows, blocks, bytes] uint8 -> [rows, blocks, 1] float32
    return blocks[..., at : at + 2].contiguous().view(torch.float16).to(torch.float32)
