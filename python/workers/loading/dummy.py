"""Random weights instead of files: for tests and benchmarks of shape and speed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from octavo.layers.base import TensorSource, WeightPart

__all__ = ["DummySource", "dummy_sources"]

_DEVIATION = 0.02


class DummySource:
    """A tensor, made on the device, that depends on its name, its whole shape, the seed and the kind of device.

    It does not depend on the ranks that read it.
    """

    def __init__(self, name: str, part: WeightPart, seed: int, device: str) -> None:
        self.shape = part.shape
        self._init = part.init
        self._device = device
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        self._seed = int.from_bytes(digest[:8], "little", signed=True)

    def read(self, rows: slice, columns: slice | None = None) -> Tensor:  # [rows(, columns)] float32
        if self._init == "ones":
            whole = torch.ones(self.shape, device=self._device)
        elif self._init == "zeros":
            whole = torch.zeros(self.shape, device=self._device)
        else:
            generator = torch.Generator(self._device).manual_seed(self._seed)
            whole = torch.empty(self.shape, device=self._device).normal_(0.0, _DEVIATION, generator=generator)
        return whole[rows] if columns is None else whole[rows, columns]


def dummy_sources(parts: dict[str, WeightPart], seed: int, device: str) -> Iterator[tuple[str, TensorSource]]:
    """Yield a random tensor for every part that a model needs: matrices normal (0.02), norms one, biases zero."""
    for name, part in parts.items():
        if part.optional:
            continue
        yield name, DummySource(name, part, seed, device)
