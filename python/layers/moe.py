"""A feed-forward layer of many experts.

The ranks of one model share each expert's intermediate size. Ranks of several copies of the model may instead spread
the experts among them (expert parallel): see octavo.layers.exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart
from octavo.layers.linear import ColumnLinear
from octavo.layers.parallel import share
from octavo.layers.sources import copy_matrix

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["Experts", "MoeSizes", "SparseMoe"]


@dataclass(frozen=True, slots=True)
class MoeSizes:
    """Of one layer of experts, over all ranks."""

    hidden: int
    intermediate: int  # of one expert
    experts: int
    taken: int  # experts of a token
    normalise: bool  # the shares of a token's experts sum to 1


class Experts(Layer):
    """The experts' matrices, each kind in one tensor."""

    def __init__(self, sizes: MoeSizes, build: Build) -> None:
        self._sizes = sizes
        self._mine = share(sizes.intermediate, build.group.rank, build.group.size)
        self._ops = build.kernels.moe
        self._group, self._exchange = build.group, build.exchange
        self._held = range(sizes.experts) if self._exchange is None else self._exchange.held(sizes.experts)
        width, held = len(self._mine), len(self._held)
        shapes = (held, 2 * width, sizes.hidden), (held, sizes.hidden, width)
        self._gate_up = torch.empty(shapes[0], dtype=build.dtype, device=build.device)  # [E, 2I, H]
        self._down = torch.empty(shapes[1], dtype=build.dtype, device=build.device)  # [E, H, I]

    def parts(self) -> dict[str, WeightPart]:
        sizes, width = self._sizes, len(self._mine)
        inner, outer = (sizes.intermediate, sizes.hidden), (sizes.hidden, sizes.intermediate)
        parts: dict[str, WeightPart] = {}
        for expert in range(sizes.experts):
            if expert not in self._held:
                parts |= {f"{expert}.{name}.weight": WeightPart(inner, _pass_by) for name in ("gate", "up")}
                parts[f"{expert}.down.weight"] = WeightPart(outer, _pass_by)
                continue
            at = expert - self._held.start
            gate, up = self._gate_up[at, :width], self._gate_up[at, width:]
            parts[f"{expert}.gate.weight"] = WeightPart(inner, self._rows_loader(gate))
            parts[f"{expert}.up.weight"] = WeightPart(inner, self._rows_loader(up))
            parts[f"{expert}.down.weight"] = WeightPart(outer, self._columns_loader(self._down[at]))
        return parts

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, Experts)
        self._gate_up.copy_(other._gate_up)
        self._down.copy_(other._down)

    def own_bytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def __call__(
        self, x: Tensor, experts: Tensor, shares: Tensor
    ) -> Tensor:  # [T, hidden] dtype, [T, k] int64, [T, k] float32 -> [T, hidden] dtype
        if self._exchange is not None:
            return self._exchange.apply(x, experts, shares, self._sizes.experts, self._alone)
        return self._group.all_reduce(self._ops.apply(x, experts, shares, self._gate_up, self._down))

    def idle(self) -> None:
        if self._exchange is not None:
            weights, sizes = self._down, self._sizes
            none = weights.new_empty(0, sizes.hidden)
            experts = torch.empty(0, sizes.taken, dtype=torch.int64, device=weights.device)
            self(none, experts, experts.to(torch.float32))

    def _alone(self, rows: Tensor, experts: Tensor) -> Tensor:  # [M, hidden] dtype, [M] int64 -> [M, hidden] dtype
        """Return what one expert of this rank makes of each row."""
        shares = torch.ones(len(rows), 1, dtype=torch.float32, device=rows.device)
        return self._ops.apply(rows, experts.unsqueeze(1), shares, self._gate_up, self._down)

    def _rows_loader(self, target: Tensor) -> Callable[[TensorSource], None]:
        def load(source: TensorSource) -> None:
            copy_matrix(source, target, self._mine, range(self._sizes.hidden))

        return load

    def _columns_loader(self, target: Tensor) -> Callable[[TensorSource], None]:
        def load(source: TensorSource) -> None:
            copy_matrix(source, target, range(self._sizes.hidden), self._mine)

        return load


def _pass_by(source: TensorSource) -> None:
    """Leave the weights of an expert that another rank holds where they are."""


class SparseMoe(Layer):
    """Each token goes through the experts that its router scores best."""

    def __init__(self, sizes: MoeSizes, build: Build) -> None:
        self._sizes = sizes
        self.router = ColumnLinear(sizes.hidden, {"gate": (sizes.experts, range(sizes.experts))}, False, build)
        self.experts = Experts(sizes, build)

    def __call__(self, x: Tensor) -> Tensor:  # [T, hidden] dtype -> [T, hidden] dtype
        scores = self.router(x).softmax(dim=-1, dtype=torch.float32)  # [T, E]
        shares, experts = scores.topk(self._sizes.taken, dim=-1)
        if self._sizes.normalise:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        return self.experts(x, experts, shares)
