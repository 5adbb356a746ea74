"""How each architecture's GGUF files name and store what a Transformers checkpoint holds, and its config.

Names: gguf-py's tensor tables. What converters change (heads interleaved, norms plus one, experts stacked):
github.com/ggml-org/llama.cpp, convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GGUF_ARCHITECTURES", "MISTRAL", "MIXTRAL", "GgufArchitecture"]

_PRE_NORM = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GATED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_FUSED = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_SANDWICH = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LLAMA = _PRE_NORM | _ATTENTION | _GATED
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.*.gate_proj",
    "ffn_up_exps": "mlp.experts.*.up_proj",
    "ffn_down_exps": "mlp.experts.*.down_proj",
}
_EXPERT_KEYS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_GEMMA_KEYS = {"attention.sliding_window": "sliding_window", "final_logit_softcapping": "final_logit_softcapping"}


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """One `general.architecture`."""

    architecture: str  # of Transformers
    model_type: str
    blocks: Mapping[str, str]  # "attn_q" of "blk.0.attn_q.weight" -> the checkpoint's name; "*": one for each expert
    interleaved: bool = False  # rows of q and k: neighbours are rotated, where Transformers rotates halves of a head
    norm_offset: float = 0.0  # the file's norm weights are those of the checkpoint plus this
    keys: Mapping[str, str] = field(default_factory=dict)  # metadata, after the architecture's name -> config.json
    constants: Mapping[str, object] = field(default_factory=dict)  # of config.json, which the file does not tell
    partial: bool = False  # rope.dimension_count may be less than a head
    #: With so many layers (27B models) scores are scaled by hidden size over heads, not by the size of a head.
    wide_at: int = 0


GGUF_ARCHITECTURES: Mapping[str, GgufArchitecture] = {
    "llama": GgufArchitecture("LlamaForCausalLM", "llama", _LLAMA, interleaved=True),
    "qwen2": GgufArchitecture("Qwen2ForCausalLM", "qwen2", _LLAMA),
    "qwen3": GgufArchitecture("Qwen3ForCausalLM", "qwen3", _LLAMA | _HEAD_NORMS),
    "qwen3moe": GgufArchitecture(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        _PRE_NORM | _ATTENTION | _HEAD_NORMS | _EXPERTS,
        keys=_EXPERT_KEYS,
        constants={"norm_topk_prob": True},
    ),
    "smollm3": GgufArchitecture("SmolLM3ForCausalLM", "smollm3", _LLAMA, interleaved=True),
    "phi3": GgufArchitecture(
        "Phi3ForCausalLM",
        "phi3",
        _PRE_NORM | _FUSED | {"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj"},
        keys={"attention.sliding_window": "sliding_window"},
        partial=True,
    ),
    "gemma2": GgufArchitecture(
        "Gemma2ForCausalLM",
        "gemma2",
        _SANDWICH | _ATTENTION | _GATED,
        norm_offset=1.0,
        keys=_GEMMA_KEYS | {"attn_logit_softcapping": "attn_logit_softcapping"},
        wide_at=46,
    ),
    "gemma3": GgufArchitecture(
        "Gemma3ForCausalLM",
        "gemma3_text",
        _SANDWICH | _ATTENTION | _GATED | _HEAD_NORMS,
        norm_offset=1.0,
        keys=_GEMMA_KEYS,
        wide_at=62,
    ),
    "olmo2": GgufArchitecture(
        "Olmo2ForCausalLM",
        "olmo2",
        _ATTENTION
        | _GATED
        | _HEAD_NORMS
        | {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
    ),
    "granite": GgufArchitecture(
        "GraniteForCausalLM",
        "granite",
        _LLAMA,
        interleaved=True,
        keys={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
    ),
    "glm4": GgufArchitecture(
        "Glm4ForCausalLM",
        "glm4",
        _ATTENTION
        | _FUSED
        | {
            "attn_norm": "input_layernorm",
            "post_attention_norm": "post_self_attn_layernorm",
            "ffn_norm": "post_attention_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        partial=True,
    ),
    "starcoder2": GgufArchitecture(
        "Starcoder2ForCausalLM",
        "starcoder2",
        _PRE_NORM | _ATTENTION | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        keys={"attention.sliding_window": "sliding_window"},
    ),
}
#: Mistral's files say "llama"; those of its first versions have a window besides.
MISTRAL = GgufArchitecture(
    "MistralForCausalLM",
    "mistral",
    _LLAMA,
    interleaved=True,
    keys={"attention.sliding_window": "sliding_window"},
)
#: Mixtral's files say "llama", and how many experts there are.
MIXTRAL = GgufArchitecture(
    "MixtralForCausalLM",
    "mixtral",
    _PRE_NORM
    | _ATTENTION
    | {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
        "ffn_up_exps": "block_sparse_moe.experts.*.w3",
        "ffn_down_exps": "block_sparse_moe.experts.*.w2",
    },
    interleaved=True,
    keys={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    constants={"sliding_window": None},
)
