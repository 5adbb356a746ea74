"""Qwen3-MoE: Qwen3 whose feed-forward layers are made of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.moe import MoeSizes, SparseMoe
from octavo.models.blocks import PreNormBlock
from octavo.models.qwen3 import Qwen3

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["Qwen3Moe", "moe_sizes"]


class Qwen3Moe(Qwen3):
    """Qwen3MoeForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        **Qwen3.names,
        "model.layers.*.mlp.gate.weight": "blocks.*.mlp.router.gate.weight",
        "model.layers.*.mlp.experts.*.gate_proj.weight": "blocks.*.mlp.experts.*.gate.weight",
        "model.layers.*.mlp.experts.*.up_proj.weight": "blocks.*.mlp.experts.*.up.weight",
        "model.layers.*.mlp.experts.*.down_proj.weight": "blocks.*.mlp.experts.*.down.weight",
    }

    def block(self, layer: int) -> PreNormBlock:
        moe = self._config.moe
        assert moe is not None
        experts = layer in moe.layers
        mlp = SparseMoe(moe_sizes(self._config), self._build) if experts else self.gated_mlp()
        return PreNormBlock(self.rms_norm(), self.head_normed_attention(layer), self.rms_norm(), mlp)


def moe_sizes(config: DecoderConfig) -> MoeSizes:
    """Return the sizes of a layer of experts."""
    moe = config.moe
    assert moe is not None
    return MoeSizes(config.hidden_size, moe.intermediate_size, moe.experts, moe.taken, moe.normalise)
