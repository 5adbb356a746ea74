"""Experts spread over ranks, which are threads here: together they give what one rank gives."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch

from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.exchange import RankExchange
from octavo.layers.moe import MoeSizes, SparseMoe
from octavo.layers.parallel import SingleGroup
from tests.unit.layers.test_sharding import Whole

if TYPE_CHECKING:
    from torch import Tensor

SIZES = MoeSizes(hidden=8, intermediate=6, experts=5, taken=2, normalise=True)


class Table:
    """Where ranks put what they send, and wait for each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=20)
        self.parts: dict[tuple[int, int], Tensor] = {}


class ThreadExchange(RankExchange):
    """A rank whose rows go to other threads."""

    def __init__(self, rank: int, size: int, table: Table) -> None:
        super().__init__(rank, size, "cpu")
        self._table = table
        self.swaps = 0

    def _swap(self, x: Tensor, sends: list[int] | None, receives: list[int] | None) -> Tensor:
        self.swaps += 1
        for rank, part in enumerate(x.split(sends or 1)):
            self._table.parts[self._rank, rank] = part
        self._table.barrier.wait()
        out = torch.cat([self._table.parts[rank, self._rank] for rank in range(self._size)])
        assert receives is None or len(out) == sum(receives)
        self._table.barrier.wait()
        return out


def make(exchange: ThreadExchange | None) -> SparseMoe:
    """A layer with the same weights each time; those that its rank does not hold are not read."""
    layer = SparseMoe(SIZES, Build(reference(), SingleGroup(), torch.float32, "cpu", 16, exchange=exchange))
    generator = torch.Generator().manual_seed(0)
    held = range(SIZES.experts) if exchange is None else exchange.held(SIZES.experts)
    for path, part in layer.weights().items():
        source = Whole(torch.randn(part.shape, generator=generator))
        part.load(source)
        expert = path.split(".")[1]
        assert bool(source.read_elements) == (not expert.isdigit() or int(expert) in held), path
    return layer


@pytest.mark.parametrize("counts", [(3, 4), (0, 5), (1, 0, 6), (0, 0, 0)])
def test_ranks_with_different_tokens_serve_each_other(counts: tuple[int, ...]) -> None:
    size, table = len(counts), Table(len(counts))
    exchanges = [ThreadExchange(rank, size, table) for rank in range(size)]
    layers = [make(exchange) for exchange in exchanges]
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(count, SIZES.hidden, generator=generator) for count in counts]

    def step(rank: int) -> Tensor:
        """A rank without tokens is idle, and serves the others all the same."""
        if counts[rank]:
            return layers[rank](inputs[rank])
        for _, layer in layers[rank].walk():
            layer.idle()
        return inputs[rank]

    with ThreadPoolExecutor(size) as pool:
        outputs = list(pool.map(step, range(size)))
    whole = make(None)
    for x, output in zip(inputs, outputs, strict=True):
        torch.testing.assert_close(output, whole(x), atol=1e-6, rtol=1e-5)
    assert len({exchange.swaps for exchange in exchanges}) == 1, "all ranks make the same calls"
    experts = sum(layer.experts.own_bytes() for layer in layers)
    assert experts == whole.experts.own_bytes(), "each expert is held once"


def test_adopting_copies_what_the_rank_holds() -> None:
    exchange = ThreadExchange(1, 2, Table(2))
    layer = make(exchange)
    build = Build(reference(), SingleGroup(), torch.float32, "cpu", 16, exchange=exchange)
    copy = SparseMoe(SIZES, build)
    copy.adopt_all(layer)
    assert torch.equal(copy.experts._down, layer.experts._down)
    assert len(copy.experts._down) == len(exchange.held(SIZES.experts)) == 3
