"""Starcoder2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.models.configs.decoder import activation, decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_starcoder2"]


def parse_starcoder2(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Starcoder2Config. Raises ModelError as `decoder_config`."""
    defaults = {"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "tie_word_embeddings": True}
    reader = Reader(config, num_key_value_heads=2, max_position_embeddings=4096, **defaults)
    if activation(reader, "hidden_act") != "gelu":
        raise ModelError(f"hidden_act {reader.get('hidden_act')!r} is not supported here; known: gelu_pytorch_tanh.")
    bias = reader.flag("use_bias")
    window = 0 if reader.get("sliding_window") is None else reader.size("sliding_window")
    return decoder_config(
        reader,
        norm_eps=reader.number("norm_epsilon"),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        windows=(window,) * reader.size("num_hidden_layers"),
    )
