"""The three ways in which decoders wire attention, feed-forward and norms around the residual.

A block takes and returns hidden states as a sum of two tensors, so that the norm that comes next can add them in the
same pass over memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from octavo.layers.base import Layer
from octavo.layers.mlp import GatedMlp

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.attention import SelfAttention
    from octavo.layers.batch import ForwardBatch
    from octavo.layers.mlp import PlainMlp
    from octavo.layers.moe import SparseMoe
    from octavo.layers.norm import LayerNorm, RmsNorm

    Norm = RmsNorm | LayerNorm
    FeedForward = GatedMlp | PlainMlp | SparseMoe

__all__ = ["Block", "PostNormBlock", "PreNormBlock", "SandwichBlock"]


class Block(Protocol):
    """One layer of a decoder; a Layer besides."""

    def __call__(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> tuple[Tensor, Tensor | None]:  # [T, hidden], [T, hidden], [T, D], [T, D] dtype -> [T, hidden] dtype, twice
        """Return the layer's output as two tensors to be added, or as one. The input is x + residual, or x alone.

        The output has the tokens that go on: see ForwardBatch.
        """
        ...


class PreNormBlock(Layer):
    """A norm before attention, and one before feed-forward; what either adds may be scaled."""

    def __init__(
        self,
        attention_norm: Norm,
        attention: SelfAttention,
        mlp_norm: Norm,
        mlp: FeedForward,
        residual_scale: float = 1.0,
    ) -> None:
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp
        self._scale = residual_scale

    def __call__(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> tuple[Tensor, Tensor | None]:  # [T, hidden], [T, hidden], [T, D], [T, D] dtype -> [T, hidden] dtype, twice
        x, residual = _enter(self.attention_norm, x, residual)
        if isinstance(self.mlp, GatedMlp) and self._scale == 1.0 and x.shape[0] >= self._sum_rows(self.mlp):
            total = self.attention(x, cos, sin, batch, batch.going_on(residual))
            return self.mlp(self.mlp_norm(total), total), None
        x, residual = self.mlp_norm.add(self._scaled(self.attention(x, cos, sin, batch)), batch.going_on(residual))
        return self._scaled(self.mlp(x)), residual

    def _sum_rows(self, mlp: GatedMlp) -> int:
        """From how many rows on both products are best added to the residual as they are made."""
        return max(self.attention.out.sum_rows, mlp.down.sum_rows)

    def _scaled(self, x: Tensor) -> Tensor:  # [T, hidden] dtype -> the same
        return x if self._scale == 1.0 else x * self._scale


class SandwichBlock(Layer):
    """A norm before and one behind attention, and the same around feed-forward."""

    def __init__(
        self,
        attention_norm: Norm,
        attention: SelfAttention,
        attention_out_norm: Norm,
        mlp_norm: Norm,
        mlp: FeedForward,
        mlp_out_norm: Norm,
    ) -> None:
        self.attention_norm = attention_norm
        self.attention = attention
        self.attention_out_norm = attention_out_norm
        self.mlp_norm = mlp_norm
        self.mlp = mlp
        self.mlp_out_norm = mlp_out_norm

    def __call__(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> tuple[Tensor, Tensor]:  # [T, hidden], [T, hidden], [T, D], [T, D] dtype -> [T, hidden] dtype, twice
        x, residual = _enter(self.attention_norm, x, residual)
        x = self.attention_out_norm(self.attention(x, cos, sin, batch))
        x, residual = self.mlp_norm.add(x, batch.going_on(residual))
        return self.mlp_out_norm(self.mlp(x)), residual


class PostNormBlock(Layer):
    """A norm behind attention, and one behind feed-forward."""

    def __init__(
        self, attention: SelfAttention, attention_out_norm: Norm, mlp: FeedForward, mlp_out_norm: Norm
    ) -> None:
        self.attention = attention
        self.attention_out_norm = attention_out_norm
        self.mlp = mlp
        self.mlp_out_norm = mlp_out_norm

    def __call__(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> tuple[Tensor, Tensor]:  # [T, hidden], [T, hidden], [T, D], [T, D] dtype -> [T, hidden] dtype, twice
        residual = x if residual is None else x + residual
        attended = self.attention_out_norm(self.attention(residual, cos, sin, batch))
        residual = batch.going_on(residual) + attended
        return self.mlp_out_norm(self.mlp(residual)), residual


def _enter(norm: Norm, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:  # [T, hidden] dtype -> twice
    """Return the normed input of a layer, and the input itself."""
    return (norm(x), x) if residual is None else norm.add(x, residual)
