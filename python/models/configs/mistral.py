"""Mistral and Mixtral."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.layers.rope_config import RopeDefaults
from octavo.models.configs.decoder import MoeConfig, decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_mistral", "parse_mixtral"]


def parse_mistral(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' MistralConfig. Raises ModelError as `decoder_config`."""
    reader = Reader(config, sliding_window=4096, max_position_embeddings=131072, num_key_value_heads=8)
    return decoder_config(reader, windows=_windows(reader))


def parse_mixtral(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' MixtralConfig. Raises ModelError as `decoder_config`."""
    sizes = {"num_local_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 8}
    reader = Reader(config, max_position_embeddings=131072, rms_norm_eps=1e-5, **sizes)
    moe = MoeConfig(
        experts=reader.size("num_local_experts"),
        taken=reader.size("num_experts_per_tok"),
        intermediate_size=reader.size("intermediate_size"),
        normalise=True,
        layers=frozenset(range(reader.size("num_hidden_layers"))),
    )
    return decoder_config(reader, RopeDefaults(theta=1000000.0), windows=_windows(reader), moe=moe)


def _windows(reader: Reader) -> tuple[int, ...]:
    """Return one window for all layers; none where `sliding_window` is null."""
    layers = reader.size("num_hidden_layers")
    return (0 if reader.get("sliding_window") is None else reader.size("sliding_window"),) * layers
