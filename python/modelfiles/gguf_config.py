"""Turn GGUF metadata into a config in Transformers' terms, and GGUF tensor names into those of a checkpoint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.errors import ModelError
from octavo.modelfiles.gguf_arch import GGUF_ARCHITECTURES, MISTRAL, MIXTRAL

if TYPE_CHECKING:
    from octavo.modelfiles.gguf_arch import GgufArchitecture
    from octavo.modelfiles.gguf_reader import GgufFile

__all__ = ["architecture_of", "checkpoint_name", "config_from_gguf", "rotary_heads"]

#: `general.file_type` -> the dtype that the weights had; quantised ones read as bfloat16.
_FILE_TYPES = {0: "float32", 1: "float16", 32: "bfloat16"}

_MODEL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
#: Tensors that are part of the config, not of the weights.
_CONFIG_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def architecture_of(file: GgufFile) -> GgufArchitecture:
    """Return how to read the file. Raises ModelError, which lists what is known, for an unknown architecture."""
    name = file.metadata.get("general.architecture")
    found = GGUF_ARCHITECTURES.get(str(name))
    if found is None:
        raise ModelError(
            f"{file.path}: the GGUF architecture {name!r} is not supported; known: {', '.join(GGUF_ARCHITECTURES)}. "
            "Choose a model of one of these."
        )
    if name == "llama" and file.metadata.get("llama.expert_count"):
        return MIXTRAL
    return MISTRAL if name == "llama" and file.metadata.get("llama.attention.sliding_window") else found


def checkpoint_name(name: str, arch: GgufArchitecture) -> str | None:
    """Return the name that a Transformers checkpoint gives to the GGUF tensor `name`; "*" stands for each expert.

    None for a tensor that became part of the config. A name that is not known is returned as it is, so that the
    strict loader names it.
    """
    if name in _CONFIG_TENSORS:
        return None
    stem, _, suffix = name.rpartition(".")
    if stem in _MODEL_NAMES:
        return f"{_MODEL_NAMES[stem]}.{suffix}"
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if block and block[2] in arch.blocks:
        return f"model.layers.{block[1]}.{arch.blocks[block[2]]}.{suffix}"
    return name


def rotary_heads(name: str, arch: GgufArchitecture, config: dict[str, Any]) -> int:
    """Return the number of heads whose rows GGUF has interleaved for its rope in `name`; 0: stored as it was.

    llama.cpp rotates neighbouring pairs in some architectures, Transformers the two halves of a head; converters to
    GGUF permute the rows of q and k, weights and biases, from the second order to the first.
    """
    if arch.interleaved and re.search(r"\battn_q\.(weight|bias)$", name):
        return int(config["num_attention_heads"])
    if arch.interleaved and re.search(r"\battn_k\.(weight|bias)$", name):
        return int(config["num_key_value_heads"])
    return 0


def config_from_gguf(file: GgufFile) -> dict[str, Any]:
    """Return the config.json that Transformers would have for this file.

    Raises ModelError for an architecture that is not known and for metadata that is absent.
    """
    arch, meta = architecture_of(file), _Meta(file)
    heads, hidden, layers = (int(meta.need(key)) for key in ("attention.head_count", "embedding_length", "block_count"))
    rotated = meta.get("rope.dimension_count")
    head_dim = int(meta.get("attention.key_length") or (None if arch.partial else rotated) or hidden // heads)
    eps = meta.get("attention.layer_norm_rms_epsilon") or meta.need("attention.layer_norm_epsilon")
    scalar = hidden // heads if layers == arch.wide_at else head_dim
    config: dict[str, Any] = {
        "architectures": [arch.architecture],
        "model_type": arch.model_type,
        "hidden_size": hidden,
        "intermediate_size": int(meta.need("feed_forward_length")),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("attention.head_count_kv") or heads),
        "head_dim": head_dim,
        "max_position_embeddings": int(meta.need("context_length")),
        "rms_norm_eps": float(eps),
        "norm_epsilon": float(eps),
        "query_pre_attn_scalar": scalar,
        "vocab_size": _vocab_size(file, meta),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "use_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "rope_parameters": _rope(file, meta),
        "bos_token_id": meta.whole.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_tokens(meta.whole),
        "pad_token_id": meta.whole.get("tokenizer.ggml.padding_token_id"),
        "dtype": _FILE_TYPES.get(int(meta.whole.get("general.file_type", 0)), "bfloat16"),
    }
    if arch.partial and rotated:
        config["rope_parameters"]["partial_rotary_factor"] = int(rotated) / head_dim
    config |= {ours: meta.get(theirs) for theirs, ours in arch.keys.items() if meta.get(theirs) is not None}
    config |= arch.constants
    if arch.model_type == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": float(meta.get("rope.freq_base_swa") or 10000.0)}
        config["rope_parameters"] = {"full_attention": config["rope_parameters"], "sliding_attention": local}
    elif meta.get("attention.sliding_window") and "sliding_window" not in config:
        raise ModelError(f"{file.path}: a sliding window is not supported for this architecture in GGUF.")
    return config


class _Meta:
    """The metadata of one file, with the architecture's keys by what follows its name."""

    def __init__(self, file: GgufFile) -> None:
        self.whole = file.metadata
        self._file = file
        self._name = file.metadata["general.architecture"]

    def get(self, key: str) -> Any:
        return self.whole.get(f"{self._name}.{key}")

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ModelError(
                f"{self._file.path} lacks the metadata {f'{self._name}.{key}'!r}. Convert the model to GGUF again."
            )
        return value


def _vocab_size(file: GgufFile, meta: _Meta) -> int:
    table = file.tensors.get("token_embd.weight")
    if table is not None:
        return table.shape[0]
    return int(meta.get("vocab_size") or len(meta.whole.get("tokenizer.ggml.tokens") or meta.need("vocab_size")))


def _end_tokens(meta: dict[str, Any]) -> int | list[int] | None:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ids = list(dict.fromkeys(int(meta[key]) for key in keys if meta.get(key) is not None))
    if len(ids) == 1:
        return ids[0]
    return ids or None


def _rope(file: GgufFile, meta: _Meta) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": float(meta.get("rope.freq_base") or 10000.0)}
    kind = meta.get("rope.scaling.type") or "none"
    if kind in ("linear", "yarn"):
        rope |= {"rope_type": kind, "factor": float(meta.need("rope.scaling.factor"))}
        if kind == "yarn":
            rope["original_max_position_embeddings"] = int(meta.need("rope.scaling.original_context_length"))
    elif kind not in ("none", "longrope"):
        raise ModelError(
            f"{file.path}: the rope scaling {kind!r} is not supported in GGUF; known: none, linear, yarn, longrope."
        )
    factors = {name: _floats(file, f"{name}.weight") for name in ("rope_factors_short", "rope_factors_long")}
    if all(factors.values()):
        rope |= {
            "rope_type": "longrope",
            "short_factor": factors["rope_factors_short"],
            "long_factor": factors["rope_factors_long"],
            "original_max_position_embeddings": int(meta.need("rope.scaling.original_context_length")),
            "attention_factor": meta.get("rope.scaling.attn_factor"),
        }
    elif kind == "longrope":
        raise ModelError(f"{file.path}: the rope scaling 'longrope' lacks rope_factors_short or rope_factors_long.")
    # Llama 3's scaling comes as a divisor for each frequency.
    divisors = _floats(file, "rope_freqs.weight")
    return rope | ({"freq_factors": divisors} if divisors else {})


def _floats(file: GgufFile, name: str) -> list[float] | None:
    tensor = file.tensors.get(name)
    return None if tensor is None else tensor.data.reshape(-1).view(np.float32).tolist()
