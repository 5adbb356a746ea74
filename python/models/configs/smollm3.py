"""SmolLM3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.layers.rope_config import RopeConfig, RopeDefaults
from octavo.models.configs.decoder import decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_smollm3"]


def parse_smollm3(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' SmolLM3Config: every fourth layer, or those of `no_rope_layers`, has no rotation.

    Raises ModelError as `decoder_config`.
    """
    defaults = {"max_position_embeddings": 32768, "num_key_value_heads": 4, "tie_word_embeddings": True}
    reader = Reader(config, no_rope_layer_interval=4, **defaults)
    layers, every = reader.size("num_hidden_layers"), reader.size("no_rope_layer_interval")
    turns = reader.get("no_rope_layers") or [int((layer + 1) % every != 0) for layer in range(layers)]
    if len(turns) < layers:
        raise ModelError(f"config.json: no_rope_layers has {len(turns)} entries for {layers} layers. Correct it.")
    plain = decoder_config(reader, RopeDefaults(theta=2000000.0))
    still = RopeConfig.still(plain.head_dim)
    windows = (0,) * layers
    if reader.flag("use_sliding_window") and reader.get("sliding_window") is not None:
        windows = reader.windows(layers, tuple(not turn for turn in turns))
    bias = reader.flag("attention_bias")
    return decoder_config(
        reader,
        ropes=tuple(plain.ropes[layer] if turns[layer] else still for layer in range(layers)),
        windows=windows,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=reader.flag("mlp_bias"),
    )
