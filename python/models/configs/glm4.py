"""GLM-4 (0414)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.layers.rope_config import RopeDefaults
from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_glm4"]


def parse_glm4(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Glm4Config: half of a head is rotated, neighbour with neighbour.

    Raises ModelError as `decoder_config`.
    """
    sizes = {"num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-7}
    reader = Reader(config, attention_bias=True, **sizes)
    rope = RopeDefaults(partial=0.5, interleaved=True)
    return decoder_config(reader, rope, attention_bias=reader.flag("attention_bias"))
