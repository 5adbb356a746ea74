"""Llama 2 and 3, and models that are exported as Llama."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_llama"]


def parse_llama(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' LlamaConfig. Raises ModelError as `decoder_config`."""
    reader = Reader(config)
    bias = reader.flag("attention_bias")
    return decoder_config(reader, attention_bias=bias, output_bias=bias, mlp_bias=reader.flag("mlp_bias"))
