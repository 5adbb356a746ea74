"""Phi-3: Llama whose checkpoints hold queries, keys and values, and gate and up, in one matrix each."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.models.decoder import DECODER_NAMES
from octavo.models.llama import PRE_NORM_NAMES, Llama

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Phi3"]


class Phi3(Llama):
    """Phi3ForCausalLM of Transformers (Phi-4-mini too)."""

    names: ClassVar[Mapping[str, str]] = {
        **DECODER_NAMES,
        **PRE_NORM_NAMES,
        "model.layers.*.self_attn.qkv_proj.*": "blocks.*.attention.qkv.{q,k,v}.*",
        "model.layers.*.self_attn.o_proj.*": "blocks.*.attention.out.*",
        "model.layers.*.mlp.gate_up_proj.*": "blocks.*.mlp.gate_up.{gate,up}.*",
        "model.layers.*.mlp.down_proj.*": "blocks.*.mlp.down.*",
    }
