"""Tiny random models of every family, as folders that Transformers saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tiny import make_tokenizer

__all__ = ["FAMILIES", "Family", "make_model"]

#: The longest sequence of the parity tests has about 150 tokens: windows and original contexts lie well below.
_WINDOW = 24


@dataclass(frozen=True)
class Family:
    """How a test builds one family: Transformers' classes and what its config says besides the common sizes."""

    name: str  # what it is called in tests
    config: str
    model: str
    note: str  # what the model has, for docs/models.md
    settings: dict[str, Any] = field(default_factory=dict)


_LAYER_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
#: With larger weights the embedding, which Gemma scales, outweighs all layers: no token would depend on them.
_GEMMA = {
    "head_dim": 24,
    "query_pre_attn_scalar": 20,
    "sliding_window": _WINDOW,
    "rms_norm_eps": 1e-6,
    "initializer_range": 0.1,
}
_MOE = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "mlp_only_layers": [1],
    "norm_topk_prob": True,
}
_QWEN2_WINDOW = {"use_sliding_window": True, "sliding_window": _WINDOW, "max_window_layers": 1}

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in [
        Family(
            "llama",
            "LlamaConfig",
            "LlamaForCausalLM",
            "one key-value head, biases",
            {"num_key_value_heads": 1, "attention_bias": True},
        ),
        Family(
            "mistral",
            "MistralConfig",
            "MistralForCausalLM",
            "a window on every layer",
            {"sliding_window": _WINDOW, "head_dim": 24},
        ),
        Family(
            "mixtral",
            "MixtralConfig",
            "MixtralForCausalLM",
            "5 experts, 2 of them taken",
            {"num_local_experts": 5, "sliding_window": None},
        ),
        Family("qwen2", "Qwen2Config", "Qwen2ForCausalLM", "biases, windows on upper layers", _QWEN2_WINDOW),
        Family(
            "qwen3",
            "Qwen3Config",
            "Qwen3ForCausalLM",
            "norms over heads, untied head",
            {"head_dim": 24, "tie_word_embeddings": False},
        ),
        Family("qwen3_moe", "Qwen3MoeConfig", "Qwen3MoeForCausalLM", "6 experts, 2 taken, one dense layer", _MOE),
        Family(
            "smollm3",
            "SmolLM3Config",
            "SmolLM3ForCausalLM",
            "a layer without rotation",
            {"no_rope_layers": [1, 0, 1], "pad_token_id": None},
        ),
        Family(
            "phi3",
            "Phi3Config",
            "Phi3ForCausalLM",
            "fused matrices, three quarters of a head rotated, windows",
            {
                "partial_rotary_factor": 0.75,
                "pad_token_id": None,
                "sliding_window": _WINDOW,
                "original_max_position_embeddings": 512,
            },
        ),
        Family(
            "gemma2",
            "Gemma2Config",
            "Gemma2ForCausalLM",
            "windows, capped scores and logits, norms on both sides",
            {**_GEMMA, "attn_logit_softcapping": 8.0},
        ),
        Family(
            "gemma3",
            "Gemma3TextConfig",
            "Gemma3ForCausalLM",
            "windows, rotation by type of layer (one scaled), norms over heads",
            {
                **_GEMMA,
                "rope_parameters": _LAYER_ROPES,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
        ),
        Family(
            "olmo2", "Olmo2Config", "Olmo2ForCausalLM", "norms behind, and over all heads", {"num_key_value_heads": 1}
        ),
        Family(
            "granite",
            "GraniteConfig",
            "GraniteForCausalLM",
            "four multipliers",
            {
                "embedding_multiplier": 3.0,
                "logits_scaling": 2.0,
                "residual_multiplier": 0.5,
                "attention_multiplier": 0.3,
            },
        ),
        Family(
            "glm4",
            "Glm4Config",
            "Glm4ForCausalLM",
            "half of a head rotated in pairs, biases, norms on both sides",
            {"head_dim": 24, "pad_token_id": None},
        ),
        Family(
            "starcoder2",
            "Starcoder2Config",
            "Starcoder2ForCausalLM",
            "layer norms, biases, windows, no gate",
            {"sliding_window": _WINDOW},
        ),
    ]
}


def make_model(folder: Path, family: Family, seed: int = 0, **overrides: Any) -> Path:
    """Save a random model of three layers, its tokenizer and template; return the folder.

    Weights, biases and norms are large enough that a wrong one shows in the logits.
    """
    tokenizer = make_tokenizer()
    settings: dict[str, Any] = {
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        **family.settings,
        **overrides,
    }
    torch.manual_seed(seed)
    model = getattr(transformers, family.model)(getattr(transformers, family.config)(**settings)).float().eval()
    for name, value in model.named_parameters():
        if value.dim() == 1:
            value.data += torch.randn(value.shape) * (0.1 if "norm" in name else 0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
