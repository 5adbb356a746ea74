"""GLM-4 (0414): norms before and behind each half of a layer; half of a head is rotated, neighbour with neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.models.blocks import SandwichBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Glm4"]


class Glm4(Decoder):
    """Glm4ForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **ATTENTION_NAMES,
        "model.layers.*.input_layernorm.weight": "blocks.*.attention_norm.weight",
        "model.layers.*.post_self_attn_layernorm.weight": "blocks.*.attention_out_norm.weight",
        "model.layers.*.post_attention_layernorm.weight": "blocks.*.mlp_norm.weight",
        "model.layers.*.post_mlp_layernorm.weight": "blocks.*.mlp_out_norm.weight",
        "model.layers.*.mlp.gate_up_proj.*": "blocks.*.mlp.gate_up.{gate,up}.*",
        "model.layers.*.mlp.down_proj.*": "blocks.*.mlp.down.*",
    }

    def block(self, layer: int) -> SandwichBlock:
        norm = self.rms_norm
        return SandwichBlock(norm(), self.attention(layer), norm(), norm(), self.gated_mlp(), norm())
