"""Layers of several ranks, computed one after the other, give together what one rank gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.embedding import Embedding, OutputHead
from octavo.layers.linear import ColumnLinear, RowLinear
from octavo.layers.parallel import SingleGroup, share

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Layer


class OneOf:
    """A rank whose collectives do nothing: the test sums and joins."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return x


class Whole:
    """A tensor source that notes what was read of it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.read_elements = 0

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:
        part = self.tensor[rows] if columns is None else self.tensor[rows, columns]
        self.read_elements += part.numel()
        return part


def build(rank: int, size: int) -> Build:
    group = OneOf(rank, size) if size > 1 else SingleGroup()
    return Build(reference(), group, torch.float32, "cpu", 16)


def load(layer: Layer, sources: dict[str, Whole]) -> None:
    for name, part in layer.parts().items():
        if part.optional:
            continue
        assert part.shape == sources[name].shape
        part.load(sources[name])
    layer.finish()


def tensors(**shapes: tuple[int, ...]) -> dict[str, Whole]:
    torch.manual_seed(0)
    return {name.replace("__", "."): Whole(torch.randn(shape)) for name, shape in shapes.items()}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_column_linear_stacks_its_shards(size: int) -> None:
    sources = tensors(a__weight=(7, 5), b__weight=(4, 5), a__bias=(7,), b__bias=(4,))
    x = torch.randn(3, 5)
    parts: dict[str, list[Tensor]] = {"a": [], "b": []}
    for rank in range(size):
        mine = {"a": (7, share(7, rank, size)), "b": (4, share(4, rank, size))}
        layer = ColumnLinear(5, mine, True, build(rank, size))
        load(layer, sources)
        a, b = layer(x).split([len(mine["a"][1]), len(mine["b"][1])], dim=1)
        parts["a"].append(a)
        parts["b"].append(b)
        assert layer.own_bytes() == 4 * 6 * (len(mine["a"][1]) + len(mine["b"][1]))
    for name in parts:
        want = x @ sources[f"{name}.weight"].tensor.T + sources[f"{name}.bias"].tensor
        torch.testing.assert_close(torch.cat(parts[name], dim=1), want)
    # Each rank read only its part: together each element once.
    assert sources["a.weight"].read_elements == 35


@pytest.mark.parametrize("size", [1, 2, 3])
def test_row_linear_sums_its_shards_and_adds_the_bias_once(size: int) -> None:
    sources = tensors(weight=(4, 7), bias=(4,))
    x = torch.randn(3, 7)
    total = torch.zeros(3, 4)
    for rank in range(size):
        mine = share(7, rank, size)
        layer = RowLinear(7, mine, 4, True, build(rank, size))
        load(layer, sources)
        total += layer(x[:, mine.start : mine.stop])
    extra = (size - 1) * sources["bias"].tensor  # the collectives of this test add nothing up, so each rank adds it
    torch.testing.assert_close(total - extra, x @ sources["weight"].tensor.T + sources["bias"].tensor)
    assert sources["weight"].read_elements == 28


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_trap_padded_vocabulary_looks_up_and_scores_like_a_whole_one(size: int, tied: bool) -> None:
    vocab, hidden = 10, 6  # padded to 12 rows on 3 and 4 ranks
    table, head_table = Whole(torch.randn(vocab, hidden)), Whole(torch.randn(vocab, hidden))
    ids, x = torch.tensor([0, 9, 4, 5], dtype=torch.int32), torch.randn(3, hidden)
    looked_up, scores = torch.zeros(4, hidden), []
    for rank in range(size):
        embedding = Embedding(vocab, hidden, build(rank, size))
        head = OutputHead(vocab, hidden, build(rank, size), embedding if tied else None)
        load(embedding, {"weight": table})
        load(head, {"weight": head_table})
        looked_up += embedding(ids)
        scores.append(head(x))
        assert scores[-1].dtype == torch.float32
    torch.testing.assert_close(looked_up, table.tensor[ids.long()])
    want = x @ (table if tied else head_table).tensor.T
    joined = torch.cat(scores, dim=1)
    torch.testing.assert_close(joined[:, :vocab], want)
    assert not joined[:, vocab:].any()  # padding lies behind the vocabulary, where the real gather cuts it off
