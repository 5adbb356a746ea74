"""Starcoder2: layer norms with biases and a feed-forward layer without a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.mlp import PlainMlp
from octavo.layers.norm import LayerNorm
from octavo.models.blocks import PreNormBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder
from octavo.models.llama import PRE_NORM_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Starcoder2"]


class Starcoder2(Decoder):
    """Starcoder2ForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **PRE_NORM_NAMES,
        **ATTENTION_NAMES,
        "model.layers.*.mlp.c_fc.*": "blocks.*.mlp.up.up.*",
        "model.layers.*.mlp.c_proj.*": "blocks.*.mlp.down.*",
    }

    def block(self, layer: int) -> PreNormBlock:
        config = self._config
        mlp = PlainMlp(config.hidden_size, config.intermediate_size, config.mlp_bias, self._build)
        return PreNormBlock(self.final_norm(), self.attention(layer), self.final_norm(), mlp)

    def final_norm(self) -> LayerNorm:
        return LayerNorm(self._config.hidden_size, self._config.norm_eps, self._build)
