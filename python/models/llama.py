"""Llama: pre-norm blocks of grouped-query attention with rotary embedding and a gated feed-forward layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.models.blocks import PreNormBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GATED_MLP_NAMES", "PRE_NORM_NAMES", "Llama"]

PRE_NORM_NAMES = {
    "model.layers.*.input_layernorm.*": "blocks.*.attention_norm.*",
    "model.layers.*.post_attention_layernorm.*": "blocks.*.mlp_norm.*",
}
GATED_MLP_NAMES = {
    "model.layers.*.mlp.gate_proj.*": "blocks.*.mlp.gate_up.gate.*",
    "model.layers.*.mlp.up_proj.*": "blocks.*.mlp.gate_up.up.*",
    "model.layers.*.mlp.down_proj.*": "blocks.*.mlp.down.*",
}


class Llama(Decoder):
    """LlamaForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = DECODER_NAMES | PRE_NORM_NAMES | ATTENTION_NAMES | GATED_MLP_NAMES

    def block(self, layer: int) -> PreNormBlock:
        scale = self._config.residual_scale
        return PreNormBlock(self.rms_norm(), self.attention(layer), self.rms_norm(), self.gated_mlp(), scale)
