"""Llama: pre-norm blocks of grouped-query attention with rotary embedding and a gated feed-forward layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from octavo.layers.attention import AttentionSizes, SelfAttention
from octavo.layers.base import Layer
from octavo.layers.embedding import Embedding, OutputHead
from octavo.layers.mlp import GatedMlp
from octavo.layers.norm import RmsNorm
from octavo.layers.parallel import kv_heads_of
from octavo.layers.rope import RopeTable
from octavo.models.base import Model
from octavo.wire.worker import KvSpec, KvTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.layers.base import Build
    from octavo.layers.batch import ForwardBatch
    from octavo.models.llama_config import LlamaConfig

__all__ = ["Llama"]


class Block(Layer):
    """One layer: attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, layer: int, config: LlamaConfig, build: Build) -> None:
        hidden, eps = config.hidden_size, config.rms_norm_eps
        sizes = AttentionSizes(
            hidden, config.num_attention_heads, config.num_key_value_heads, config.head_dim, config.attention_bias
        )
        self.attention_norm = RmsNorm(hidden, eps, build)
        self.attention = SelfAttention(layer, sizes, build)
        self.mlp_norm = RmsNorm(hidden, eps, build)
        self.mlp = GatedMlp(hidden, config.intermediate_size, config.mlp_bias, build)

    def __call__(
        self, x: Tensor, residual: Tensor | None, cos: Tensor, sin: Tensor, batch: ForwardBatch
    ) -> tuple[Tensor, Tensor]:  # [T, hidden] dtype, twice -> twice; the layer's output is their sum
        if residual is None:
            x, residual = self.attention_norm(x), x
        else:
            x, residual = self.attention_norm.add(x, residual)
        x = self.attention(x, cos, sin, batch)
        x, residual = self.mlp_norm.add(x, residual)
        return self.mlp(x), residual


class Llama(Model):
    """LlamaForCausalLM of Transformers."""

    names: ClassVar[Mapping[str, str]] = {
        "model.embed_tokens.weight": "embedding.weight",
        "model.layers.*.input_layernorm.weight": "blocks.*.attention_norm.weight",
        "model.layers.*.self_attn.q_proj.*": "blocks.*.attention.qkv.q.*",
        "model.layers.*.self_attn.k_proj.*": "blocks.*.attention.qkv.k.*",
        "model.layers.*.self_attn.v_proj.*": "blocks.*.attention.qkv.v.*",
        "model.layers.*.self_attn.o_proj.*": "blocks.*.attention.out.*",
        "model.layers.*.post_attention_layernorm.weight": "blocks.*.mlp_norm.weight",
        "model.layers.*.mlp.gate_proj.*": "blocks.*.mlp.gate_up.gate.*",
        "model.layers.*.mlp.up_proj.*": "blocks.*.mlp.gate_up.up.*",
        "model.layers.*.mlp.down_proj.*": "blocks.*.mlp.down.*",
        "model.norm.weight": "norm.weight",
        "lm_head.weight": "head.weight",
    }
    ignored = (r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)

    def __init__(self, config: LlamaConfig, build: Build) -> None:
        self.vocab_size = config.vocab_size
        self._config, self._build = config, build
        self.embedding = Embedding(config.vocab_size, config.hidden_size, build)
        self.blocks = [Block(layer, config, build) for layer in range(config.num_hidden_layers)]
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps, build)
        tied = self.embedding if config.tie_word_embeddings else None
        self.head = OutputHead(config.vocab_size, config.hidden_size, build, tied)
        self._rope = RopeTable(config.rope, build)

    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        x: Tensor = self.embedding(ids)  # [T, hidden] dtype; with the residual, the hidden states
        residual: Tensor | None = None  # [T, hidden] dtype
        cos, sin = self._rope(batch.positions)
        for layer, block in enumerate(self.blocks):
            batch.progress.layer = layer
            x, residual = block(x, residual, cos, sin, batch)
        assert residual is not None
        return self.norm.add(x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab] dtype
        return self.head(hidden)

    def kv_specs(self) -> tuple[KvSpec, ...]:
        config, size = self._config, self._build.group.size
        heads = max(len(kv_heads_of(config.num_key_value_heads, rank, size)) for rank in range(size))
        dtype = str(self._build.dtype).removeprefix("torch.")
        shape = (heads, config.head_dim)
        tensors = (KvTensor("k", shape, dtype), KvTensor("v", shape, dtype))
        return tuple(KvSpec(layer, "full", tensors) for layer in range(config.num_hidden_layers))

    def kv_heads(self, layer: int) -> int:
        group = self._build.group
        return len(kv_heads_of(self._config.num_key_value_heads, group.rank, group.size))

    def is_ignored(self, name: str) -> bool:
        # Some checkpoints store the head although it is the embedding.
        return super().is_ignored(name) or (self._config.tie_word_embeddings and name == "lm_head.weight")
