"""Gemma 2 and 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.layers.rope_config import RopeConfig, RopeDefaults
from octavo.models.configs.decoder import activation, decoder_config
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["parse_gemma2", "parse_gemma3"]

_COMMON = {
    "head_dim": 256,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}


def parse_gemma2(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Gemma2Config: every other layer has a window, scores and logits are capped.

    Raises ModelError as `decoder_config`.
    """
    caps = {"final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0}
    reader = Reader(config, max_position_embeddings=8192, **_COMMON, **caps)
    return _gemma(reader, every=2)


def parse_gemma3(config: dict[str, Any]) -> DecoderConfig:
    """Read Transformers' Gemma3TextConfig: five layers of six have a window and a rotation of their own.

    Raises ModelError as `decoder_config`.
    """
    reader = Reader(config, max_position_embeddings=131072, sliding_window_pattern=6, **_COMMON)
    if reader.flag("use_bidirectional_attention"):
        raise ModelError("use_bidirectional_attention is not supported: it is for embeddings. Choose another model.")
    every = reader.size("sliding_window_pattern")
    windows = _windows(reader, every)
    head_dim = reader.size("head_dim")
    nested = any(key in (config.get("rope_parameters") or {}) for key in ("full_attention", "sliding_attention"))
    turned = config | {"max_position_embeddings": reader.size("max_position_embeddings")}
    full = RopeConfig.parse(turned, head_dim, RopeDefaults(theta=1000000.0))
    local = {"max_position_embeddings": turned["max_position_embeddings"]}
    local |= {"rope_parameters": config["rope_parameters"]} if nested else {}
    base = RopeDefaults(theta=float(config.get("rope_local_base_freq") or 10000.0))
    sliding = RopeConfig.parse(local, head_dim, base, "sliding_attention")
    return _gemma(reader, every, ropes=tuple(sliding if window else full for window in windows))


def _gemma(reader: Reader, every: int, **family: Any) -> DecoderConfig:
    bias = reader.flag("attention_bias")
    key = "hidden_activation" if reader.get("hidden_activation") else "hidden_act"
    return decoder_config(
        reader,
        windows=_windows(reader, every),
        activation=activation(reader, key),
        attention_scale=reader.number("query_pre_attn_scalar") ** -0.5,
        attention_bias=bias,
        output_bias=bias,
        attention_softcap=reader.number("attn_logit_softcapping", 0.0),
        logit_softcap=reader.number("final_logit_softcapping", 0.0),
        embedding_scale=reader.size("hidden_size") ** 0.5,
        **family,
    )


def _windows(reader: Reader, every: int) -> tuple[int, ...]:
    layers = reader.size("num_hidden_layers")
    return reader.windows(layers, tuple((layer + 1) % every != 0 for layer in range(layers)))
