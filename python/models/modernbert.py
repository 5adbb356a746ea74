"""ModernBERT: rotated positions, gated feed-forward, norms in front, and layers that see their neighbourhood alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.attention import AttentionSizes
from octavo.layers.base import Layer
from octavo.layers.classifier import HeadSpec
from octavo.layers.embedding import Embedding
from octavo.layers.mlp import GatedMlp
from octavo.layers.norm import LayerNorm
from octavo.layers.rope import RopeTable
from octavo.layers.row_attention import RowAttention
from octavo.models.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch
    from octavo.models.configs.encoder import ModernBertConfig

__all__ = ["ModernBert"]


class ModernBertBlock(Layer):
    """A norm before attention, but in the first block, and one before feed-forward."""

    def __init__(self, config: ModernBertConfig, layer: int, build: Build) -> None:
        hidden, heads, bias = config.hidden_size, config.num_attention_heads, config.attention_bias
        sizes = AttentionSizes(hidden, heads, heads, config.head_dim, bias, bias)
        self.attention_norm = _norm(config, build) if layer else None
        self.attention = RowAttention(sizes, build, config.reaches[layer])
        self.mlp_norm = _norm(config, build)
        self.mlp = GatedMlp(hidden, config.intermediate_size, config.mlp_bias, build, config.activation)

    def __call__(
        self, x: Tensor, batch: ForwardBatch, turn: tuple[Tensor, Tensor]
    ) -> Tensor:  # [T, hidden] dtype, [T, D] dtype twice -> [T, hidden] dtype
        x = x + self.attention(x if self.attention_norm is None else self.attention_norm(x), batch, turn)
        return x + self.mlp(self.mlp_norm(x))


class ModernBert(Encoder):
    """ModernBertModel of Transformers, and the encoder inside of its other classes."""

    names: ClassVar[Mapping[str, str]] = {
        "embeddings.tok_embeddings.*": "words.*",
        "embeddings.norm.*": "norm.*",
        "layers.*.attn_norm.*": "blocks.*.attention_norm.*",
        "layers.*.attn.Wqkv.*": "blocks.*.attention.qkv.{q,k,v}.*",
        "layers.*.attn.Wo.*": "blocks.*.attention.out.*",
        "layers.*.mlp_norm.*": "blocks.*.mlp_norm.*",
        "layers.*.mlp.Wi.*": "blocks.*.mlp.gate_up.{gate,up}.*",
        "layers.*.mlp.Wo.*": "blocks.*.mlp.down.*",
        "final_norm.*": "final_norm.*",
    }
    headless: ClassVar[tuple[str, ...]] = (r"(?:head|decoder|classifier)\..*",)
    prefix: ClassVar[str] = "model"

    def __init__(self, config: ModernBertConfig, build: Build) -> None:
        self.vocab_size = config.vocab_size
        self._config = config
        self.words = Embedding(config.vocab_size, config.hidden_size, build)
        self.norm = _norm(config, build)
        self.blocks = [ModernBertBlock(config, layer, build) for layer in range(config.num_hidden_layers)]
        self.final_norm = _norm(config, build)
        kinds = list(dict.fromkeys(config.ropes))
        self._ropes = [RopeTable(rope, build) for rope in kinds]
        self._rope_of = [kinds.index(rope) for rope in config.ropes]  # by layer

    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        x = self.norm(self.words(ids))
        turns = [table(batch.positions) for table in self._ropes]
        for layer, block in enumerate(self.blocks):
            batch.progress.layer = layer
            x = block(x, batch, turns[self._rope_of[layer]])
        return batch.going_on(self.final_norm(x))

    def head_spec(self, task: str) -> HeadSpec:
        c = self._config
        return HeadSpec(
            "classifier", True, "head.dense", c.head_bias, c.head_activation, "head.norm", c.norm_eps, c.norm_bias
        )


def _norm(config: ModernBertConfig, build: Build) -> LayerNorm:
    return LayerNorm(config.hidden_size, config.norm_eps, build, config.norm_bias)
