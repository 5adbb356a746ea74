"""What every decoder's config comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.layers.rope_config import LLAMA_ROPE, RopeConfig, RopeDefaults

if TYPE_CHECKING:
    from octavo.models.configs.reader import Reader

__all__ = ["DecoderConfig", "MoeConfig", "activation", "decoder_config"]

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu"}


@dataclass(frozen=True, slots=True)
class MoeConfig:
    """Layers whose feed-forward part is made of experts."""

    experts: int
    taken: int  # experts of a token
    intermediate_size: int  # of one expert
    normalise: bool  # the shares of a token's experts sum to 1
    layers: frozenset[int]  # those that have experts


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """One model. Scales and caps that a family lacks are 1 and 0."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_eps: float
    activation: str  # "silu" or "gelu" (its tanh form)
    tie_word_embeddings: bool
    ropes: tuple[RopeConfig, ...]  # by layer
    windows: tuple[int, ...]  # by layer: keys that a query sees, its own included; 0: all
    attention_scale: float
    attention_bias: bool = False  # of queries, keys, values
    output_bias: bool = False  # of what follows attention
    mlp_bias: bool = False
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what each half of a layer adds
    logit_divisor: float = 1.0
    moe: MoeConfig | None = None


def decoder_config(reader: Reader, rope: RopeDefaults = LLAMA_ROPE, **family: Any) -> DecoderConfig:
    """Return the config from the keys that most families share; `family` gives the fields that differ.

    Raises ModelError, which names the key, for what is absent, out of range or not supported.
    """
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    kv_heads = reader.size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}.")
    head_dim = reader.size("head_dim", hidden // heads)
    if head_dim % 2:
        raise ModelError(f"head_dim {head_dim} is odd; the rotary embedding needs an even one.")
    layers, longest = reader.size("num_hidden_layers"), reader.size("max_position_embeddings", 2048)
    turned = reader.config | {"max_position_embeddings": longest}
    fields: dict[str, Any] = {
        "vocab_size": reader.size("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": reader.size("intermediate_size"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": longest,
        "norm_eps": reader.number("rms_norm_eps", 1e-6),
        "activation": activation(reader, "hidden_act"),
        "tie_word_embeddings": reader.flag("tie_word_embeddings"),
        "windows": (0,) * layers,
        "attention_scale": head_dim**-0.5,
    }
    if "ropes" not in family:
        fields["ropes"] = (RopeConfig.parse(turned, head_dim, rope),) * layers
    return DecoderConfig(**(fields | family))


def activation(reader: Reader, key: str) -> str:
    """Return the activation's name here. Raises ModelError for one that is not known."""
    given = reader.get(key) or "silu"
    if given not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ModelError(f"{key} {given!r} is not supported; known: {known}. Choose another model.")
    return _ACTIVATIONS[given]
