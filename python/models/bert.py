"""BERT and RoBERTa: embeddings of words, segments and positions, and blocks with norms behind both halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from octavo.layers.attention import AttentionSizes
from octavo.layers.base import Layer
from octavo.layers.classifier import HeadSpec
from octavo.layers.embedding import Embedding
from octavo.layers.mlp import PlainMlp
from octavo.layers.norm import LayerNorm
from octavo.layers.row_attention import RowAttention
from octavo.models.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch
    from octavo.models.configs.encoder import BertConfig

__all__ = ["Bert", "Roberta"]


class BertBlock(Layer):
    """A norm behind attention, and one behind feed-forward."""

    def __init__(self, config: BertConfig, build: Build) -> None:
        hidden, heads, dim = config.hidden_size, config.num_attention_heads, config.head_dim
        sizes = AttentionSizes(hidden, heads, heads, dim, bias=True, out_bias=True)
        self.attention = RowAttention(sizes, build)
        self.attention_norm = LayerNorm(hidden, config.norm_eps, build)
        self.mlp = PlainMlp(hidden, config.intermediate_size, True, build, config.activation)
        self.mlp_norm = LayerNorm(hidden, config.norm_eps, build)

    def __call__(self, x: Tensor, batch: ForwardBatch) -> Tensor:  # [T, hidden] dtype -> [T, hidden] dtype
        x = self.attention_norm(self.attention(x, batch) + x)
        return self.mlp_norm(self.mlp(x) + x)


class Bert(Encoder):
    """BertModel of Transformers, and the encoder inside of its other classes."""

    names: ClassVar[Mapping[str, str]] = {
        "embeddings.word_embeddings.*": "words.*",
        "embeddings.position_embeddings.*": "places.*",
        "embeddings.token_type_embeddings.*": "segments.*",
        "embeddings.LayerNorm.*": "norm.*",
        "encoder.layer.*.attention.self.query.*": "blocks.*.attention.qkv.q.*",
        "encoder.layer.*.attention.self.key.*": "blocks.*.attention.qkv.k.*",
        "encoder.layer.*.attention.self.value.*": "blocks.*.attention.qkv.v.*",
        "encoder.layer.*.attention.output.dense.*": "blocks.*.attention.out.*",
        "encoder.layer.*.attention.output.LayerNorm.*": "blocks.*.attention_norm.*",
        "encoder.layer.*.intermediate.dense.*": "blocks.*.mlp.up.up.*",
        "encoder.layer.*.output.dense.*": "blocks.*.mlp.down.*",
        "encoder.layer.*.output.LayerNorm.*": "blocks.*.mlp_norm.*",
    }
    ignored: ClassVar[tuple[str, ...]] = (r"embeddings\.(?:position_ids|token_type_ids)",)
    headless: ClassVar[tuple[str, ...]] = (r"(?:pooler|cls|lm_head|classifier|qa_outputs)\..*",)
    prefix: ClassVar[str] = "bert"

    def __init__(self, config: BertConfig, build: Build) -> None:
        self.vocab_size = config.vocab_size
        self._config = config
        hidden = config.hidden_size
        self.words = Embedding(config.vocab_size, hidden, build)
        self.places = Embedding(config.positions, hidden, build)
        self.segments = Embedding(config.segments, hidden, build)
        self.norm = LayerNorm(hidden, config.norm_eps, build)
        self.blocks = [BertBlock(config, build) for _ in range(config.num_hidden_layers)]

    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        segments = torch.zeros_like(ids) if batch.segments is None else batch.segments  # [T] int32
        segments = segments.clamp(max=self._config.segments - 1)
        x = self.words(ids) + self.segments(segments) + self.places(self._rows(ids, batch))
        x = self.norm(x)
        for layer, block in enumerate(self.blocks):
            batch.progress.layer = layer
            x = block(x, batch)
        return batch.going_on(x)

    def _rows(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [T] int32
        """Return each token's row in the table of positions."""
        return (batch.positions + self._config.first_position).to(torch.int32)

    def head_spec(self, task: str) -> HeadSpec:
        return HeadSpec("classifier", True, inner="pooler.dense" if task == "classify" else "")


class Roberta(Bert):
    """RobertaModel and XLMRobertaModel of Transformers: paddings inside of a text take up no position."""

    prefix: ClassVar[str] = "roberta"

    def _rows(self, ids: Tensor, batch: ForwardBatch) -> Tensor:
        padding, first = self._config.padding_id, self._config.first_position
        assert padding is not None
        text = ids.ne(padding).to(torch.int64)
        total = text.cumsum(0)  # of the whole step; each row begins with what came before it
        before = total - text
        starts = torch.repeat_interleave(
            before.index_select(0, _starts(batch).to(ids.device)),
            torch.tensor(batch.counts, device=ids.device),
            output_size=ids.shape[0],
        )
        return ((total - starts) * text + first - 1).to(torch.int32)

    def head_spec(self, task: str) -> HeadSpec:
        if task == "classify":
            return HeadSpec("classifier.out_proj", True, inner="classifier.dense")
        return HeadSpec("classifier", True)


def _starts(batch: ForwardBatch) -> Tensor:  # [R] int64
    """Return the first token of each row."""
    counts = torch.tensor(batch.counts)
    ends: Tensor = counts.cumsum(0)
    return ends - counts
