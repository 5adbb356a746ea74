"""Phi-3 and Phi-4-mini."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.layers.rope_config import RopeDefaults
from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_phi3"]

#: Older configs call long rope "su", or even "yarn".
_ROPE = RopeDefaults(partial=1.0, aliases=(("su", "longrope"), ("yarn", "longrope")))


def parse_phi3(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Phi3Config. Raises ModelError as `decoder_config`."""
    reader = Reader(
        {"original_max_position_embeddings": 4096} | config, max_position_embeddings=4096, rms_norm_eps=1e-5
    )
    window = 0 if reader.get("sliding_window") is None else reader.size("sliding_window")
    return decoder_config(reader, _ROPE, windows=(window,) * reader.size("num_hidden_layers"))
