"""Token embedding and output head, their vocabulary shared among ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["Embedding", "OutputHead"]


class _VocabTable(Layer):
    """Rows of a [vocab, hidden] table. The vocabulary is padded with zero rows to a multiple of the ranks."""

    def __init__(self, vocab: int, hidden: int, build: Build) -> None:
        self._shape = (vocab, hidden)
        rows = -(-vocab // build.group.size)
        self.first = rows * build.group.rank
        self.table = torch.zeros(rows, hidden, dtype=build.dtype, device=build.device)  # [rows, hidden]
        self._bytes = self.table.nbytes

    def parts(self) -> dict[str, WeightPart]:
        return {"weight": WeightPart(self._shape, self._load)}

    def own_bytes(self) -> int:
        return self._bytes

    def _load(self, source: TensorSource) -> None:
        stop = min(self.first + self.table.shape[0], self._shape[0])
        if stop > self.first:
            self.table[: stop - self.first] = source.read(slice(self.first, stop))


class Embedding(_VocabTable):
    """From token ids to vectors."""

    def __init__(self, vocab: int, hidden: int, build: Build) -> None:
        super().__init__(vocab, hidden, build)
        self._ops = build.kernels.embedding
        self._group = build.group

    def __call__(self, ids: Tensor) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        return self._group.all_reduce(self._ops.lookup(ids, self.table, self.first))


class OutputHead(_VocabTable):
    """From vectors to logits. `tied`: an embedding whose table is the head's, which then has no weight of its own."""

    def __init__(self, vocab: int, hidden: int, build: Build, tied: Embedding | None) -> None:
        super().__init__(vocab, hidden if tied is None else 0, build)
        self._vocab = vocab
        self._ops = build.kernels.linear
        self._group = build.group
        self._tied = tied

    def parts(self) -> dict[str, WeightPart]:
        return super().parts() if self._tied is None else {}

    def finish(self) -> None:
        # A packed copy of a tied table costs its size in memory; the lookup needs plain rows.
        plain = self.table if self._tied is None else self._tied.table
        self.table = self._ops.pack(plain)
        if self._tied is not None and self.table is not plain:
            self._bytes = plain.nbytes

    def __call__(self, x: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab] dtype
        logits = self._group.all_gather(self._ops.apply(x, self.table, None))
        # The padding lies behind the vocabulary: no padded id can be drawn.
        return logits[:, : self._vocab]
