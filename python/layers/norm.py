"""Normalisation layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.api import QkNorm
from octavo.layers.base import Layer, WeightPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.base import Build, TensorSource

__all__ = ["NARROW", "HeadNorms", "LayerNorm", "NormKind", "RmsNorm"]


class NormKind:
    """How a family scales after an RMS norm: see NormOps.rms_norm. `offset` is added to the weight once, at load."""

    def __init__(self, wide: bool, offset: float = 0.0) -> None:
        self.wide = wide  # the weight is float32, and rounding comes after the product
        self.offset = offset

    def ones(self, size: int, build: Build) -> Tensor:  # [size]
        """Return a weight that scales nothing."""
        return torch.ones(size, dtype=torch.float32 if self.wide else build.dtype, device=build.device)

    def part(self, weight: Tensor, dtype: torch.dtype) -> WeightPart:  # [size]
        """Return what fills `weight` from a checkpoint. It is rounded to the model's `dtype` first, as every weight."""
        return WeightPart((weight.shape[0],), self._loader(weight, dtype), "zeros" if self.offset else "ones")

    def _loader(self, weight: Tensor, dtype: torch.dtype) -> Callable[[TensorSource], None]:
        def load(source: TensorSource) -> None:
            weight.copy_(source.read(slice(None)).to(dtype).to(weight.dtype) + self.offset)

        return load


#: weight * round(x / rms(x))
NARROW = NormKind(wide=False)


class RmsNorm(Layer):
    """Root-mean-square norm, with or without a residual added first."""

    def __init__(self, size: int, eps: float, build: Build, kind: NormKind = NARROW) -> None:
        self._ops = build.kernels.norm
        self._eps = eps
        self._kind = kind
        self._dtype = build.dtype
        self._weight = kind.ones(size, build)

    def parts(self) -> dict[str, WeightPart]:
        return {"weight": self._kind.part(self._weight, self._dtype)}

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, RmsNorm)
        self._weight.copy_(other._weight)

    def own_bytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:  # [T, size] dtype -> [T, size] dtype
        return self._ops.rms_norm(x, self._weight, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # [T, size] dtype, twice -> twice
        """Return (norm(x + residual), x + residual). Either input may be overwritten."""
        return self._ops.add_rms_norm(x, residual, self._weight, self._eps)


class LayerNorm(Layer):
    """Norm of mean and variance, with a bias unless `bias` says otherwise."""

    def __init__(self, size: int, eps: float, build: Build, bias: bool = True) -> None:
        self._ops = build.kernels.norm
        self._eps = eps
        self._has_bias = bias
        self._weight = NARROW.ones(size, build)
        self._bias = torch.zeros(size, dtype=build.dtype, device=build.device)  # [size]

    def parts(self) -> dict[str, WeightPart]:
        parts = {"weight": NARROW.part(self._weight, self._weight.dtype)}
        if self._has_bias:
            parts["bias"] = WeightPart(tuple(self._bias.shape), self._load, "zeros")
        return parts

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, LayerNorm)
        self._weight.copy_(other._weight)
        self._bias.copy_(other._bias)

    def own_bytes(self) -> int:
        return self._weight.nbytes + self._bias.nbytes

    def __call__(self, x: Tensor) -> Tensor:  # [T, size] dtype -> [T, size] dtype
        return self._ops.layer_norm(x, self._weight, self._bias, self._eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:  # [T, size] dtype, twice -> twice
        """Return (norm(x + residual), x + residual)."""
        total = x + residual
        return self(total), total

    def _load(self, source: TensorSource) -> None:
        self._bias.copy_(source.read(slice(None)))


class HeadNorms(Layer):
    """RMS norms over each head of queries and of keys; the attention kernel applies them, with the rotation."""

    def __init__(self, head_dim: int, eps: float, build: Build, kind: NormKind = NARROW) -> None:
        self._kind = kind
        self._dtype = build.dtype
        self.norm = QkNorm(kind.ones(head_dim, build), kind.ones(head_dim, build), eps)

    def parts(self) -> dict[str, WeightPart]:
        q, k = (self._kind.part(weight, self._dtype) for weight in (self.norm.q, self.norm.k))
        return {"q.weight": q, "k.weight": k}

    def adopt(self, other: Layer) -> None:
        assert isinstance(other, HeadNorms)
        self.norm.q.copy_(other.norm.q)
        self.norm.k.copy_(other.norm.k)

    def own_bytes(self) -> int:
        return self.norm.q.nbytes + self.norm.k.nbytes
