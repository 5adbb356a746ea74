"""Qwen3: Llama with norms over each head of queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.models.blocks import PreNormBlock
from octavo.models.decoder import Decoder
from octavo.models.llama import Llama

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEAD_NORM_NAMES", "Qwen3"]

HEAD_NORM_NAMES = {
    "model.layers.*.self_attn.q_norm.weight": "blocks.*.attention.norms.q.weight",
    "model.layers.*.self_attn.k_norm.weight": "blocks.*.attention.norms.k.weight",
}


class Qwen3(Decoder):
    """Qwen3ForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {**Llama.names, **HEAD_NORM_NAMES}

    def block(self, layer: int) -> PreNormBlock:
        return PreNormBlock(self.rms_norm(), self.head_normed_attention(layer), self.rms_norm(), self.gated_mlp())
