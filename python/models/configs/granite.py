"""Granite 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_granite"]


def parse_granite(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' GraniteConfig. Raises ModelError as `decoder_config`."""
    reader = Reader(config)
    bias = reader.flag("attention_bias")
    return decoder_config(
        reader,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=reader.flag("mlp_bias"),
        attention_scale=reader.number("attention_multiplier", 1.0),
        embedding_scale=reader.number("embedding_multiplier", 1.0),
        residual_scale=reader.number("residual_multiplier", 1.0),
        logit_divisor=reader.number("logits_scaling", 1.0),
    )
