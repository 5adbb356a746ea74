"""The settings of a Llama model. Free of torch: the supervisor checks them before any process starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError
from octavo.layers.rope_config import RopeConfig

__all__ = ["LlamaConfig"]


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Fields mean what they mean in Transformers' LlamaConfig."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    rope: RopeConfig

    @classmethod
    def parse(cls, config: dict[str, Any]) -> LlamaConfig:
        """Read and check a config.json. Absent keys take Transformers' defaults where it has them.

        Raises ModelError, which names the key, for what is absent, out of range or not supported.
        """
        hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
        kv_heads = _size(config, "num_key_value_heads", heads)
        if heads % kv_heads:
            raise ModelError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}.")
        act = config.get("hidden_act", "silu")
        if act not in ("silu", "swish"):
            raise ModelError(f"hidden_act {act!r} is not supported; known: silu. Choose another model.")
        head_dim = _size(config, "head_dim", hidden // heads)
        if head_dim % 2:
            raise ModelError(f"head_dim {head_dim} is odd; the rotary embedding needs an even one.")
        return cls(
            vocab_size=_size(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_size(config, "intermediate_size"),
            num_hidden_layers=_size(config, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=_size(config, "max_position_embeddings", 2048),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            attention_bias=bool(config.get("attention_bias", False)),
            mlp_bias=bool(config.get("mlp_bias", False)),
            rope=RopeConfig.parse(config, head_dim),
        )


def _size(config: dict[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise ModelError(f"config.json lacks {key!r}. Download the model's config.json again.")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"config.json: {key!r} is {value!r}, not a positive number. Correct config.json.")
    return value
