"""Normalisation layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.layers.base import Layer, WeightPart

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["RmsNorm"]


class RmsNorm(Layer):
    """Root-mean-square norm, with or without a residual added first."""

    def __init__(self, size: int, eps: float, build: Build) -> None:
        self._ops = build.kernels.norm
        self._eps = eps
        self._weight = torch.ones(size, dtype=build.dtype, device=build.device)  # [size]

    def parts(self) -> dict[str, WeightPart]:
        return {"weight": WeightPart((self._weight.shape[0],), self._load, "ones")}

    def own_bytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:  # [T, size] dtype -> [T, size] dtype
        return self._ops.rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # [T, size] dtype, twice -> twice
        """Return (norm(x + residual), x + residual). Either input may be overwritten."""
        return self._ops.add_rms_norm(x, residual, self._weight, self._eps)

    def _load(self, source: TensorSource) -> None:
        self._weight.copy_(source.read(slice(None)))
