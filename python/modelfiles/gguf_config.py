"""Turn GGUF metadata into a config in Transformers' terms, and GGUF tensor names into those of a checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import ModelError

if TYPE_CHECKING:
    from octavo.modelfiles.gguf_reader import GgufFile

__all__ = ["checkpoint_name", "config_from_gguf", "rotary_heads"]

#: `general.file_type` -> the dtype that the weights had; quantised ones read as bfloat16.
_FILE_TYPES = {0: "float32", 1: "float16", 32: "bfloat16"}

_LLAMA_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LLAMA_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
#: Tensors that are part of the config, not of the weights.
_CONFIG_TENSORS = ("rope_freqs.weight",)


def checkpoint_name(name: str) -> str | None:
    """Return the name that a Transformers checkpoint gives to the GGUF tensor `name`.

    None for a tensor that became part of the config. A name that is not known is returned as it is, so that the
    strict loader names it.
    """
    if name in _CONFIG_TENSORS:
        return None
    stem, _, suffix = name.rpartition(".")
    if stem in _LLAMA_NAMES:
        return f"{_LLAMA_NAMES[stem]}.{suffix}"
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if block and block[2] in _LLAMA_BLOCK_NAMES:
        return f"model.layers.{block[1]}.{_LLAMA_BLOCK_NAMES[block[2]]}.{suffix}"
    return name


def rotary_heads(name: str, config: dict[str, Any]) -> int:
    """Return the number of heads whose rows GGUF has interleaved for its rope in `name`; 0: stored as it was.

    llama.cpp rotates neighbouring pairs, Transformers the two halves of a head; converters to GGUF permute the rows of
    q and k, weights and biases, from the second order to the first.
    """
    if re.search(r"\battn_q\.(weight|bias)$", name):
        return int(config["num_attention_heads"])
    if re.search(r"\battn_k\.(weight|bias)$", name):
        return int(config["num_key_value_heads"])
    return 0


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return the config.json that Transformers would have for this file.

    Raises ModelError for an architecture that is not llama's and for metadata that is absent.
    """
    meta = file.metadata
    arch = meta.get("general.architecture")
    if arch != "llama":
        raise ModelError(
            f"{file.path}: the GGUF architecture {arch!r} is not supported; known: llama. "
            "Choose a model of this architecture."
        )
    if meta.get("llama.expert_count"):
        raise ModelError(f"{file.path}: mixtures of experts ({meta['llama.expert_count']} experts) are not supported.")
    heads = int(_need(file, "llama.attention.head_count"))
    hidden = int(_need(file, "llama.embedding_length"))
    head_dim = int(meta.get("llama.attention.key_length") or meta.get("llama.rope.dimension_count") or hidden // heads)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": int(_need(file, "llama.feed_forward_length")),
        "num_hidden_layers": int(_need(file, "llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "max_position_embeddings": int(_need(file, "llama.context_length")),
        "rms_norm_eps": float(_need(file, "llama.attention.layer_norm_rms_epsilon")),
        "vocab_size": _vocab_size(file),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "rope_parameters": _rope(file),
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_tokens(meta),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
        "dtype": _FILE_TYPES.get(int(meta.get("general.file_type", 0)), "bfloat16"),
    }
    return config


def _need(file: GgufFile, key: str) -> Any:
    value = file.metadata.get(key)
    if value is None:
        raise ModelError(f"{file.path} lacks the metadata {key!r}. Convert the model to GGUF again.")
    return value


def _vocab_size(file: GgufFile) -> int:
    table = file.tensors.get("token_embd.weight")
    if table is not None:
        return table.shape[0]
    return int(file.metadata.get("llama.vocab_size") or len(_need(file, "tokenizer.ggml.tokens")))


def _end_tokens(meta: dict[str, Any]) -> int | list[int] | None:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ids = list(dict.fromkeys(int(meta[key]) for key in keys if meta.get(key) is not None))
    if len(ids) == 1:
        return ids[0]
    return ids or None


def _rope(file: GgufFile) -> dict[str, Any]:
    meta = file.metadata
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": float(meta.get("llama.rope.freq_base", 10000.0))}
    kind = meta.get("llama.rope.scaling.type", "none")
    if kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": float(_need(file, "llama.rope.scaling.factor"))}
        if kind == "yarn":
            rope["original_max_position_embeddings"] = int(_need(file, "llama.rope.scaling.original_context_length"))
    elif kind != "none":
        raise ModelError(f"{file.path}: the rope scaling {kind!r} is not supported in GGUF; known: none, linear, yarn.")
    factors = file.tensors.get("rope_freqs.weight")
    if factors is not None:
        # Llama 3's scaling comes as a divisor for each frequency.
        rope["freq_factors"] = factors.data.reshape(-1).view(np.float32).tolist()
    return rope
