"""Encoders: BERT, RoBERTa and ModernBERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.layers.rope_config import RopeConfig, RopeDefaults
from octavo.models.configs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BertConfig", "ModernBertConfig", "parse_bert", "parse_modernbert", "parse_roberta"]

#: Transformers' "gelu" is the exact one.
_ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
}


@dataclass(frozen=True, slots=True)
class BertConfig:
    """BERT and RoBERTa: positions and kinds of segments are embeddings."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    positions: int  # rows of the table of positions
    first_position: int  # row of a sequence's first token
    padding_id: int | None  # tokens of this id take up no position, and have row `first_position - 1`
    segments: int
    norm_eps: float
    activation: str  # as PlainMlp's

    @property
    def max_position_embeddings(self) -> int:
        """The longest sequence in tokens."""
        return self.positions - self.first_position


@dataclass(frozen=True, slots=True)
class ModernBertConfig:
    """ModernBERT: positions are rotations, and most layers see their neighbourhood alone."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    max_position_embeddings: int
    ropes: tuple[RopeConfig, ...]  # by layer
    reaches: tuple[int, ...]  # by layer: how far a token sees to either side; 0: all
    norm_eps: float
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool
    activation: str  # as GatedMlp's
    head_bias: bool
    head_activation: str


def parse_bert(config: dict[str, Any]) -> BertConfig:
    """Read Transformers' BertConfig. Raises ModelError, which names the key, for what cannot be served."""
    return _bert(Reader(config, type_vocab_size=2), None)


def parse_roberta(config: dict[str, Any]) -> BertConfig:
    """Read Transformers' RobertaConfig and XLMRobertaConfig: positions begin behind the padding's.

    Raises ModelError as `parse_bert`.
    """
    reader = Reader(config, type_vocab_size=2, pad_token_id=1)
    padding = reader.get("pad_token_id")
    if not isinstance(padding, int) or padding < 0:
        raise ModelError(f"config.json: 'pad_token_id' is {padding!r}, not a token id. Correct config.json.")
    return _bert(reader, padding)


def _bert(reader: Reader, padding: int | None) -> BertConfig:
    kind = reader.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise ModelError(f"position_embedding_type {kind!r} is not supported; known: absolute. Choose another model.")
    if reader.flag("is_decoder") or reader.flag("add_cross_attention"):
        raise ModelError("is_decoder is not supported for this model: it is served as an encoder.")
    hidden, heads = reader.size("hidden_size", 768), reader.size("num_attention_heads", 12)
    first = 0 if padding is None else padding + 1
    positions = reader.size("max_position_embeddings", 512)
    if positions <= first:
        raise ModelError(f"config.json: max_position_embeddings {positions} leaves no position for a token.")
    return BertConfig(
        vocab_size=reader.size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size", 3072),
        num_hidden_layers=reader.size("num_hidden_layers", 12),
        num_attention_heads=heads,
        head_dim=_head_dim(hidden, heads),
        positions=positions,
        first_position=first,
        padding_id=padding,
        segments=reader.size("type_vocab_size"),
        norm_eps=reader.number("layer_norm_eps", 1e-12),
        activation=_activation(reader, "hidden_act"),
    )


def parse_modernbert(config: dict[str, Any]) -> ModernBertConfig:
    """Read Transformers' ModernBertConfig. Raises ModelError, which names the key, for what cannot be served."""
    reader = Reader(config, global_attn_every_n_layers=3, local_attention=128, norm_eps=1e-5)
    hidden, heads = reader.size("hidden_size", 768), reader.size("num_attention_heads", 12)
    layers, longest = reader.size("num_hidden_layers", 22), reader.size("max_position_embeddings", 8192)
    every, head_dim = reader.size("global_attn_every_n_layers"), _head_dim(hidden, heads)
    reach = reader.size("local_attention") // 2
    by_default = tuple(layer % every != 0 for layer in range(layers))
    local = Reader(config | {"sliding_window": max(reach, 1)}).windows(layers, by_default)
    turned = config | {"max_position_embeddings": longest}
    far = RopeConfig.parse(turned, head_dim, RopeDefaults(theta=float(reader.number("global_rope_theta", 160000.0))))
    near_theta = float(reader.number("local_rope_theta", 10000.0))
    nested: dict[str, Any] = {
        key: turned[key] for key in ("rope_parameters", "max_position_embeddings") if key in turned
    }
    near = RopeConfig.parse(nested, head_dim, RopeDefaults(theta=near_theta), "sliding_attention")
    return ModernBertConfig(
        vocab_size=reader.size("vocab_size", 50368),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size", 1152),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=longest,
        ropes=tuple(near if window else far for window in local),
        reaches=local,
        norm_eps=reader.number("norm_eps"),
        norm_bias=reader.flag("norm_bias"),
        attention_bias=reader.flag("attention_bias"),
        mlp_bias=reader.flag("mlp_bias"),
        activation=_activation(reader, "hidden_activation"),
        head_bias=reader.flag("classifier_bias"),
        head_activation=_activation(reader, "classifier_activation"),
    )


def _head_dim(hidden: int, heads: int) -> int:
    if hidden % heads:
        raise ModelError(f"hidden_size {hidden} is no multiple of num_attention_heads {heads}.")
    return hidden // heads


def _activation(reader: Reader, key: str) -> str:
    given = reader.get(key) or "gelu"
    if given not in _ACTIVATIONS:
        raise ModelError(f"{key} {given!r} is not supported; known: {', '.join(_ACTIVATIONS)}. Choose another model.")
    return _ACTIVATIONS[given]
