"""What all decoders share: an embedding, a stack of blocks, a norm and a head."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

from octavo.layers.attention import AttentionSizes, Scoring, SelfAttention
from octavo.layers.embedding import Embedding, OutputHead
from octavo.layers.mlp import GatedMlp
from octavo.layers.norm import NARROW, HeadNorms, RmsNorm
from octavo.layers.parallel import kv_heads_of
from octavo.layers.rope import RopeTable
from octavo.models.base import Model
from octavo.wire.worker import KvSpec, KvTensor

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch
    from octavo.layers.full_norm import FullNorms
    from octavo.layers.norm import LayerNorm, NormKind
    from octavo.models.blocks import Block
    from octavo.models.configs.decoder import DecoderConfig

__all__ = ["ATTENTION_NAMES", "DECODER_NAMES", "Decoder"]

#: Around the blocks.
DECODER_NAMES = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.*": "norm.*",
    "lm_head.*": "head.*",
}
#: Attention with a matrix each for queries, keys and values.
ATTENTION_NAMES = {
    "model.layers.*.self_attn.q_proj.*": "blocks.*.attention.qkv.q.*",
    "model.layers.*.self_attn.k_proj.*": "blocks.*.attention.qkv.k.*",
    "model.layers.*.self_attn.v_proj.*": "blocks.*.attention.qkv.v.*",
    "model.layers.*.self_attn.o_proj.*": "blocks.*.attention.out.*",
}


class Decoder(Model):
    """A family says what a block is, and how its weights are called; its config says the rest."""

    ignored: ClassVar[tuple[str, ...]] = (r"model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
    headless: ClassVar[tuple[str, ...]] = (r"(?:lm_head|score)\..*",)
    #: How the family's RMS norms scale.
    norm_kind: ClassVar[NormKind] = NARROW
    #: Whether queries and keys are rotated in float32 whatever the dtype is.
    wide_rotation: ClassVar[bool] = False
    #: Whether vectors that a request brings are scaled as the embedding's rows are, as by Transformers.
    scales_given: ClassVar[bool] = True

    def __init__(self, config: DecoderConfig, build: Build) -> None:
        self.vocab_size, self.hidden_size = config.vocab_size, config.hidden_size
        self._config, self._build = config, build
        # A window as long as any sequence is none: full layers share prefixes better.
        self._windows = tuple(window if window < build.max_positions else 0 for window in config.windows)
        self.embedding = Embedding(config.vocab_size, config.hidden_size, build, config.embedding_scale)
        self.blocks = [self.block(layer) for layer in range(config.num_hidden_layers)]
        self.norm = self.final_norm()
        tied = self.embedding if config.tie_word_embeddings else None
        self.head = OutputHead(config.vocab_size, config.hidden_size, build, tied) if build.generates else None
        kinds = list(dict.fromkeys(config.ropes))
        self._ropes = [RopeTable(rope, build, self.wide_rotation) for rope in kinds]
        self._rope_of = [kinds.index(rope) for rope in config.ropes]  # by layer

    @abstractmethod
    def block(self, layer: int) -> Block:
        """Return the block of one layer."""

    def final_norm(self) -> RmsNorm | LayerNorm:
        """Return the norm behind the blocks."""
        return self.rms_norm()

    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [W, hidden] dtype
        x: Tensor = self.embedding(ids)  # [T, hidden] dtype; with the residual, the hidden states
        if batch.given is not None:
            x = batch.given.into(x, self.embedding.scale if self.scales_given else 1.0)
        residual: Tensor | None = None  # [T, hidden] dtype
        turns = [table(batch.positions) for table in self._ropes]
        whole, last = dataclasses.replace(batch, ending=None), len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            batch.progress.layer = layer
            cos, sin = turns[self._rope_of[layer]]
            x, residual = block(x, residual, cos, sin, batch if layer == last else whole)
        return self.norm(x) if residual is None else self.norm.add(x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab] dtype
        assert self.head is not None
        logits, cap = self.head(hidden), self._config.logit_softcap
        if self._config.logit_divisor != 1.0:
            logits = logits / self._config.logit_divisor
        return cap * torch.tanh(logits / cap) if cap else logits

    def kv_specs(self) -> tuple[KvSpec, ...]:
        config, size = self._config, self._build.group.size
        heads = max(len(kv_heads_of(config.num_key_value_heads, rank, size)) for rank in range(size))
        dtype = str(self._build.dtype).removeprefix("torch.")
        shape = (heads, config.head_dim)
        tensors = (KvTensor("k", shape, dtype), KvTensor("v", shape, dtype))
        return tuple(
            KvSpec(layer, "window" if window else "full", tensors, window) for layer, window in enumerate(self._windows)
        )

    def kv_heads(self, layer: int) -> int:
        group = self._build.group
        return len(kv_heads_of(self._config.num_key_value_heads, group.rank, group.size))

    def attention(self, layer: int, norms: HeadNorms | FullNorms | None = None) -> SelfAttention:
        """Return the attention of one layer."""
        config = self._config
        scoring = Scoring(config.attention_scale, self._windows[layer], config.attention_softcap)
        return SelfAttention(layer, self.attention_sizes(), scoring, config.ropes[layer], self._build, norms)

    def head_normed_attention(self, layer: int) -> SelfAttention:
        """Return the attention of one layer, with norms over each head of queries and keys."""
        norms = HeadNorms(self._config.head_dim, self._config.norm_eps, self._build, self.norm_kind)
        return self.attention(layer, norms)

    def attention_sizes(self) -> AttentionSizes:
        """Return the sizes of each layer's attention."""
        c = self._config
        return AttentionSizes(
            c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.attention_bias, c.output_bias
        )

    def gated_mlp(self) -> GatedMlp:
        """Return a gated feed-forward layer."""
        config = self._config
        return GatedMlp(config.hidden_size, config.intermediate_size, config.mlp_bias, self._build, config.activation)

    def rms_norm(self) -> RmsNorm:
        """Return a norm of hidden states."""
        return RmsNorm(self._config.hidden_size, self._config.norm_eps, self._build, self.norm_kind)
