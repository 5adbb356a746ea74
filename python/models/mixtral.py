"""Mixtral: Mistral whose feed-forward layers are made of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.moe import SparseMoe
from octavo.models.blocks import PreNormBlock
from octavo.models.decoder import ATTENTION_NAMES, DECODER_NAMES, Decoder
from octavo.models.llama import PRE_NORM_NAMES
from octavo.models.qwen3_moe import moe_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Mixtral"]


class Mixtral(Decoder):
    """MixtralForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **PRE_NORM_NAMES,
        **ATTENTION_NAMES,
        "model.layers.*.block_sparse_moe.gate.weight": "blocks.*.mlp.router.gate.weight",
        "model.layers.*.block_sparse_moe.experts.*.w1.weight": "blocks.*.mlp.experts.*.gate.weight",
        "model.layers.*.block_sparse_moe.experts.*.w3.weight": "blocks.*.mlp.experts.*.up.weight",
        "model.layers.*.block_sparse_moe.experts.*.w2.weight": "blocks.*.mlp.experts.*.down.weight",
    }

    def block(self, layer: int) -> PreNormBlock:
        mlp = SparseMoe(moe_sizes(self._config), self._build)
        return PreNormBlock(self.rms_norm(), self.attention(layer), self.rms_norm(), mlp)
