"""What layers have in common: the weights they wait for, and the way down to their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import Tensor

    from octavo.kernels.api import Kernels
    from octavo.layers.exchange import Exchange
    from octavo.layers.parallel import Group

__all__ = ["Build", "Layer", "TensorSource", "WeightPart"]


@dataclass(frozen=True, slots=True)
class Build:
    """What layers are built with, besides their sizes."""

    kernels: Kernels
    group: Group
    dtype: torch.dtype
    device: str
    max_positions: int  # of a sequence; the length of the rotary table
    generates: bool = True  # whether logits are asked for
    exchange: Exchange | None = None  # with the ranks over which experts are spread; None: they are not


class TensorSource(Protocol):
    """A tensor of a checkpoint, read as far as asked."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)], floating
        """Return the rows (and columns, of a matrix), in a floating dtype of the source's choice, on the CPU."""
        ...


@dataclass(frozen=True, slots=True)
class WeightPart:
    """One tensor of a checkpoint that a layer waits for."""

    shape: tuple[int, ...]  # of the whole tensor, over all ranks
    load: Callable[[TensorSource], None]  # takes this rank's part of it
    init: str = "normal"  # of dummy weights: "normal", "ones", "zeros"
    optional: bool = False  # the layer does without it where a checkpoint has none


class Layer:
    """Base of layers and models. Public attributes that are layers, or lists of layers, are its parts.

    A layer's own weights are in `parts`; after all are loaded `finish` is called once.
    """

    def parts(self) -> dict[str, WeightPart]:
        """Return the layer's own weights by name, without those of its parts."""
        return {}

    def finish(self) -> None:
        """Bring loaded weights into their final layout and drop the rest."""

    def idle(self) -> None:
        """Do this layer's part of a step in which its rank computes nothing: serve other ranks, where it does."""

    def adopt(self, other: Layer) -> None:
        """Copy the own weights of `other`, which is this layer in another model of the same config and rank.

        `other` may be finished, and on another device; this layer is not finished yet.
        """

    def adopt_all(self, other: Layer) -> None:
        """Copy the weights of `other` and those below it; see `adopt`."""
        for (_, mine), (_, theirs) in zip(self.walk(), other.walk(), strict=True):
            mine.adopt(theirs)

    def own_bytes(self) -> int:
        """Return the size of the layer's own weights on this rank."""
        return 0

    def weight_bytes(self) -> int:
        """Return the size of all weights of this layer and those below it on this rank."""
        return sum(layer.own_bytes() for _, layer in self.walk())

    def walk(self, path: str = "") -> Iterator[tuple[str, Layer]]:
        """Yield this layer and all below it, each with its path ("blocks.0.mlp.down"), parents first."""
        yield path, self
        prefix = f"{path}." if path else ""
        for name, value in vars(self).items():
            if name.startswith("_"):
                continue
            if isinstance(value, Layer):
                yield from value.walk(prefix + name)
            elif isinstance(value, list):
                for index, item in enumerate(value):
                    if isinstance(item, Layer):
                        yield from item.walk(f"{prefix}{name}.{index}")

    def weights(self) -> dict[str, WeightPart]:
        """Return every weight of this layer and those below it by path."""
        found: dict[str, WeightPart] = {}
        for path, layer in self.walk():
            prefix = f"{path}." if path else ""
            found |= {prefix + name: part for name, part in layer.parts().items()}
        return found
