"""What stands behind the hidden states of a classifier: values of labels, from pooled vectors or from tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from octavo.layers.base import Layer
from octavo.layers.linear import ColumnLinear
from octavo.layers.norm import LayerNorm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.layers.base import Build, WeightPart

__all__ = ["Classifier", "HeadSpec"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu_erf": F.gelu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
}


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """How a family's head is made, and how a checkpoint calls its parts."""

    outer: str  # the matrix that gives labels
    bias: bool  # of it
    inner: str = ""  # a square one before it; "": there is none
    inner_bias: bool = True
    activation: str = "tanh"  # behind the inner one
    norm: str = ""  # behind that; "": there is none
    norm_eps: float = 1e-5
    norm_bias: bool = False


class Classifier(Layer):
    """outer(norm(act(inner(x)))), as far as the spec has them; whole on every rank."""

    def __init__(self, hidden: int, labels: int, spec: HeadSpec, build: Build) -> None:
        self._spec = spec
        self._dtype = build.dtype
        square = {"inner": (hidden, range(hidden))}
        self.inner = ColumnLinear(hidden, square, spec.inner_bias, build) if spec.inner else None
        self.norm = LayerNorm(hidden, spec.norm_eps, build, spec.norm_bias) if spec.norm else None
        self.outer = ColumnLinear(hidden, {"outer": (labels, range(labels))}, spec.bias, build)

    def checkpoint(self) -> dict[str, WeightPart]:
        """Return every tensor that a checkpoint should have for this head, by name."""
        names = {"inner.inner": self._spec.inner, "norm": self._spec.norm, "outer.outer": self._spec.outer}
        found = {}
        for path, part in self.weights().items():
            place, _, kind = path.rpartition(".")
            found[f"{names[place]}.{kind}"] = part
        return found

    def __call__(self, x: Tensor) -> Tensor:  # [R, hidden] float32 -> [R, labels] float32
        x = x.to(self._dtype)
        if self.inner is not None:
            x = _ACTIVATIONS[self._spec.activation](self.inner(x))
        if self.norm is not None:
            x = self.norm(x)
        return self.outer(x).float()
