"""OLMo 2: norms behind each half of a layer, and over all heads of queries and of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.full_norm import FullNorms
from octavo.layers.norm import NormKind
from octavo.models.blocks import PostNormBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder
from octavo.models.llama import GATED_MLP_NAMES
from octavo.models.qwen3 import HEAD_NORM_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Olmo2"]


class Olmo2(Decoder):
    """Olmo2ForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **ATTENTION_NAMES,
        **HEAD_NORM_NAMES,
        **GATED_MLP_NAMES,
        "model.layers.*.post_attention_layernorm.weight": "blocks.*.attention_out_norm.weight",
        "model.layers.*.post_feedforward_layernorm.weight": "blocks.*.mlp_out_norm.weight",
    }
    norm_kind = NormKind(wide=True)
    wide_rotation = True

    def block(self, layer: int) -> PostNormBlock:
        norms = FullNorms(self.attention_sizes(), self._config.norm_eps, self._build)
        return PostNormBlock(self.attention(layer, norms), self.rms_norm(), self.gated_mlp(), self.rms_norm())
