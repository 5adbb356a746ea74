"""Token embedding and output head, their vocabulary shared among ranks."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart
from octavo.layers.sources import copy_matrix

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["Embedding", "OutputHead"]

_log = logging.getLogger(__name__)


class _VocabTable(Layer):
    """Rows of a [vocab, hidden] table. The vocabulary is padded with zero rows to a multiple of the ranks."""

    def __init__(self, vocab: int, hidden: int, build: Build, empty: bool = False) -> None:
        """`empty`: without memory until a checkpoint turns out to have the table."""
        self._shape = (vocab, hidden)
        self._rows = -(-vocab // build.group.size)
        self._options = (build.dtype, build.device)
        self.first = self._rows * build.group.rank
        self.table = self._zeros(0) if empty else self._zeros()  # [rows, hidden]
        self._bytes = self.table.nbytes

    def parts(self) -> dict[str, WeightPart]:
        return {"weight": WeightPart(self._shape, self._load)}

    def own_bytes(self) -> int:
        return self._bytes

    def _zeros(self, rows: int | None = None) -> Tensor:  # [rows, hidden] dtype
        dtype, device = self._options
        return torch.zeros(self._rows if rows is None else rows, self._shape[1], dtype=dtype, device=device)

    def _load(self, source: TensorSource) -> None:
        stop = min(self.first + self.table.shape[0], self._shape[0])
        if stop > self.first:
            copy_matrix(source, self.table, range(self.first, stop), range(self._shape[1]))


class Embedding(_VocabTable):
    """From token ids to vectors, times `scale`, which is rounded to the model's dtype first."""

    def __init__(self, vocab: int, hidden: int, build: Build, scale: float = 1.0) -> None:
        super().__init__(vocab, hidden, build)
        self._ops = build.kernels.embedding
        self._group = build.group
        self.scale: float = torch.tensor(scale, dtype=build.dtype).item()

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, Embedding)
        self.table.copy_(other.table)

    def __call__(self, ids: Tensor) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        x = self._group.all_reduce(self._ops.lookup(ids, self.table, self.first))
        return x if self.scale == 1.0 else x * self.scale


class OutputHead(_VocabTable):
    """From vectors to logits.

    `tied`: an embedding whose table serves here too. A checkpoint may have a head nevertheless: one with other values
    is used, and a warning says so. A bias is added where a checkpoint has one.
    """

    def __init__(self, vocab: int, hidden: int, build: Build, tied: Embedding | None) -> None:
        super().__init__(vocab, hidden, build, empty=tied is not None)
        self._ops = build.kernels.linear
        self._build = build
        self._tied = tied
        self._bias: Tensor | None = None  # [rows] dtype
        self._packed = False

    def parts(self) -> dict[str, WeightPart]:
        weight = dataclasses.replace(super().parts()["weight"], optional=self._tied is not None)
        return {"weight": weight, "bias": WeightPart(self._shape[:1], self._load_bias, "zeros", optional=True)}

    def own_bytes(self) -> int:
        return super().own_bytes() + (0 if self._bias is None else self._bias.nbytes)

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, OutputHead)
        if other._bias is not None:
            self._bias = torch.empty_like(other._bias, device=self._build.device)
            self._bias.copy_(other._bias)
        if (other._packed and other._tied is not None) or not (other._packed or other.table.numel()):
            return  # the embedding's table serves there, and so it does here
        if not self.table.numel():
            self.table = self._zeros()
            self._bytes = self.table.nbytes
        self.table.copy_(self._ops.unpack(other.table) if other._packed else other.table)

    def finish(self) -> None:
        self._packed = True
        if self._tied is not None:
            if self.table.numel() and not torch.equal(self.table, self._tied.table):
                _log.warning("the config ties the output head to the embedding, but the file has another head: used")
                self._tied = None
            else:
                self.table, self._bytes = self._tied.table, 0
        # A packed copy of a tied table costs its size in memory; the lookup needs plain rows.
        plain, self.table = self.table, self._ops.pack(self.table)
        if self._tied is not None and self.table is not plain:
            self._bytes = plain.nbytes

    def __call__(self, x: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab] dtype
        logits = self._build.group.all_gather(self._ops.apply(x, self.table, self._bias))
        # The padding lies behind the vocabulary: no padded id can be drawn.
        return logits[:, : self._shape[0]]

    def _load(self, source: TensorSource) -> None:
        if not self.table.numel():
            self.table = self._zeros()
            self._bytes = self.table.nbytes
        super()._load(source)

    def _load_bias(self, source: TensorSource) -> None:
        self._bias = torch.zeros(self._rows, dtype=self._build.dtype, device=self._build.device)
        mine = range(self.first, min(self.first + self._rows, self._shape[0]))
        self._bias[: len(mine)] = source.read(slice(mine.start, mine.stop)) if mine else 0.0
