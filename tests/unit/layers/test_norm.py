"""What a norm keeps of a checkpoint's weight."""

from __future__ import annotations

import torch

from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.norm import NormKind, RmsNorm
from octavo.layers.parallel import SingleGroup


class Source:
    """A tensor of a checkpoint in float32."""

    def __init__(self, values: torch.Tensor) -> None:
        self.shape = tuple(values.shape)
        self._values = values

    def read(self, *index: slice) -> torch.Tensor:
        return self._values[index]


def test_a_weight_kept_in_float32_has_the_models_dtype_first() -> None:
    """As Transformers, which has it in the model's dtype and widens it to multiply."""
    values = torch.randn(64)
    norm = RmsNorm(64, 1e-6, Build(reference(), SingleGroup(), torch.bfloat16, "cpu", 8), NormKind(True, 1.0))
    norm.parts()["weight"].load(Source(values))
    assert torch.equal(norm._weight, values.to(torch.bfloat16).to(torch.float32) + 1.0)
