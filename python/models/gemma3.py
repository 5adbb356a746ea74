"""Gemma 3: Gemma 2 with norms over each head of queries and keys, and another rotation where there is a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.models.blocks import SandwichBlock
from octavo.models.decoder import Decoder
from octavo.models.gemma2 import Gemma2
from octavo.models.qwen3 import HEAD_NORM_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Gemma3"]


class Gemma3(Gemma2):
    """Gemma3ForCausalLM of Transformers, and the text half of Gemma3ForConditionalGeneration."""

    names: ClassVar[Mapping[str, str]] = {**Gemma2.names, **HEAD_NORM_NAMES}
    ignored = (*Decoder.ignored, r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*")

    def block(self, layer: int) -> SandwichBlock:
        norm, attention = self.rms_norm, self.head_normed_attention(layer)
        return SandwichBlock(norm(), attention, norm(), norm(), self.gated_mlp(), norm())
