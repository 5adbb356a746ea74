"""The models that are measured: shapes of Qwen3, random weights, a tokenizer of as many words as there are ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.shapes import QWEN3_06B, QWEN3_8B, Shape
from octavo.modelfiles.word_tokenizer import word_tokenizer
from octavo.models.registry import ARCHITECTURES

__all__ = ["SHAPES", "write_model"]

SHAPES = {"8b": QWEN3_8B, "06b": QWEN3_06B}
CONTEXT = 40960


def write_model(name: str, folder: Path) -> Path:
    """Write config and tokenizer of the model `name` into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = SHAPES[name]
    (folder / "config.json").write_text(json.dumps(_config(shape, tied=name == "06b")), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(word_tokenizer(shape.vocab)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    return folder


def _config(shape: Shape, tied: bool) -> dict[str, Any]:
    architecture = "Qwen3ForCausalLM" if "Qwen3ForCausalLM" in ARCHITECTURES else "LlamaForCausalLM"
    return {
        "architectures": [architecture],
        "model_type": "qwen3" if architecture.startswith("Qwen3") else "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
    }
