"""Gemma 2: norms before and behind each half of a layer, windows on every other layer, capped scores and logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.norm import NormKind
from octavo.models.blocks import SandwichBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder
from octavo.models.llama import GATED_MLP_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Gemma2"]


class Gemma2(Decoder):
    """Gemma2ForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **ATTENTION_NAMES,
        **GATED_MLP_NAMES,
        "model.layers.*.input_layernorm.weight": "blocks.*.attention_norm.weight",
        "model.layers.*.post_attention_layernorm.weight": "blocks.*.attention_out_norm.weight",
        "model.layers.*.pre_feedforward_layernorm.weight": "blocks.*.mlp_norm.weight",
        "model.layers.*.post_feedforward_layernorm.weight": "blocks.*.mlp_out_norm.weight",
    }
    scales_given = False  # the scale is the embedding's own, in Transformers too
    norm_kind = NormKind(wide=True, offset=1.0)  # x / rms(x) * (1 + weight)

    def block(self, layer: int) -> SandwichBlock:
        norm = self.rms_norm
        return SandwichBlock(norm(), self.attention(layer), norm(), norm(), self.gated_mlp(), norm())
