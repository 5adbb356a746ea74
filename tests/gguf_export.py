"""Write a Transformers model as a GGUF file: tensor names from gguf-py's tables, weights as llama.cpp converts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from safetensors.numpy import load_file

from octavo.models.registry import find
from tests.unit.modelfiles.gguf_writer import write_gguf

__all__ = ["export_gguf"]

_INTERLEAVED = ("llama", "granite", "smollm3")


def export_gguf(config: dict[str, Any], folder: Path, path: Path, kind: str = "F32") -> Path:
    """Write the model in `folder` (config.json: `config`) to `path`; matrices are stored as `kind`."""
    arch = find(config["architectures"][0]).gguf or "llama"
    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == arch)
    names = get_tensor_name_map(number, config["num_hidden_layers"])
    tensors: dict[str, tuple[np.ndarray[Any, Any], str]] = {}
    experts: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, array in load_file(folder / "model.safetensors").items():
        stem, _, suffix = name.rpartition(".")
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(stem.rpartition(".")[2])
        if heads and arch in _INTERLEAVED:
            array = array.reshape(config[heads], 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            array = array + 1
        if ".experts." in name:
            before, _, after = stem.partition(".experts.")
            stem = f"{before}.experts.{after.partition('.')[2]}"
            experts.setdefault(stem, []).append(array)
            continue
        tensors[f"{names.get_name(stem)}.{suffix}"] = (array, kind if array.ndim == 2 else "F32")
    for stem, each in experts.items():
        tensors[f"{names.get_name(stem)}.weight"] = (np.stack(each), "F32")
    return write_gguf(path, _metadata(config, arch), tensors, arch)


def _metadata(config: dict[str, Any], arch: str) -> dict[str, Any]:
    """Return the metadata, under the names of gguf-py's Keys."""
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    norm = "layer_norm_epsilon" if "norm_epsilon" in config else "layer_norm_rms_epsilon"
    found: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": dim,
        f"attention.{norm}": float(config.get("norm_epsilon") or config["rms_norm_eps"]),
        "rope.dimension_count": int(dim * rope.get("partial_rotary_factor", 1.0)),
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if rope["rope_type"] == "linear":
        found |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    given = {
        "attention.sliding_window": config.get("sliding_window"),
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "expert_count": config.get("num_experts") or config.get("num_local_experts"),
        "expert_used_count": config.get("num_experts_per_tok"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "attention.scale": config.get("attention_multiplier"),
        "embedding_scale": config.get("embedding_multiplier"),
        "residual_scale": config.get("residual_multiplier"),
        "logit_scale": config.get("logits_scaling"),
    }
    found |= {key: value for key, value in given.items() if value is not None}
    return {f"{arch}.{key}": value for key, value in found.items()}
