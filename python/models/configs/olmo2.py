"""OLMo 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_olmo2"]


def parse_olmo2(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Olmo2Config. Raises ModelError as `decoder_config`."""
    reader = Reader(config, rms_norm_eps=1e-5)
    bias = reader.flag("attention_bias")
    return decoder_config(reader, attention_bias=bias, output_bias=bias)
