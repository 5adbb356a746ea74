"""Qwen2, Qwen3 and Qwen3-MoE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.models.configs.decoder import MoeConfig, decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_qwen2", "parse_qwen3", "parse_qwen3_moe"]


def parse_qwen2(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Qwen2Config. Raises ModelError as `decoder_config`."""
    reader = Reader(config, sliding_window=4096, max_window_layers=28, max_position_embeddings=32768)
    return decoder_config(reader, attention_bias=True, windows=_upper_windows(reader))


def parse_qwen3(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Qwen3Config. Raises ModelError as `decoder_config`."""
    defaults = {"sliding_window": 4096, "max_window_layers": 28, "max_position_embeddings": 32768}
    reader = Reader(config, head_dim=128, **defaults)
    bias = reader.flag("attention_bias")
    return decoder_config(reader, attention_bias=bias, output_bias=bias, windows=_upper_windows(reader))


def parse_qwen3_moe(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Qwen3MoeConfig. Raises ModelError as `decoder_config`."""
    sizes = {"moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128, "decoder_sparse_step": 1}
    sizes |= {"num_key_value_heads": 4}
    reader = Reader(config, sliding_window=4096, max_position_embeddings=32768, **sizes)
    layers, step = reader.size("num_hidden_layers"), reader.size("decoder_sparse_step")
    dense = set(reader.get("mlp_only_layers") or ())
    # Older configs call the number of experts num_experts, as Transformers wrote it, or num_local_experts.
    experts = reader.config.get("num_local_experts") or reader.size("num_experts")
    moe = MoeConfig(
        experts=int(experts),
        taken=reader.size("num_experts_per_tok"),
        intermediate_size=reader.size("moe_intermediate_size"),
        normalise=reader.flag("norm_topk_prob"),
        layers=frozenset(layer for layer in range(layers) if layer not in dense and (layer + 1) % step == 0),
    )
    bias = reader.flag("attention_bias")
    window = (
        reader.size("sliding_window", 1) if reader.flag("use_sliding_window") and reader.get("sliding_window") else 0
    )
    return decoder_config(reader, attention_bias=bias, output_bias=bias, windows=(window,) * layers, moe=moe)


def _upper_windows(reader: Reader) -> tuple[int, ...]:
    """Return the windows of the layers from `max_window_layers` on, where the config uses them at all."""
    layers = reader.size("num_hidden_layers")
    if not reader.flag("use_sliding_window") or reader.get("sliding_window") is None:
        return (0,) * layers
    return reader.windows(layers, tuple(layer >= int(reader.get("max_window_layers")) for layer in range(layers)))
