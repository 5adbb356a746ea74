"""Make tokenizer.json and tokenizer_config.json from GGUF metadata: byte-level BPE here, SentencePiece in gguf_spm.

A GGUF file names the splitter by `tokenizer.ggml.pre`. The splitters here are those of the models' own tokenizer.json
files. Transformers 5.24 converts the same metadata, but knows no digit splitting for "smollm" (it would cut a run of
spaces before a digit differently) and no NFC for "qwen2": there the model's own tokenizer is right, and we follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError
from octavo.modelfiles.gguf_spm import spm_tokenizer

__all__ = ["PRE_TOKENIZERS", "tokenizer_config_from_gguf", "tokenizer_from_gguf"]

_CONTROL = 3
_USER_DEFINED = 4

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Splitter:
    """How text is cut before merging. Without `split`, GPT-2's rule, which ByteLevel has built in."""

    split: str = ""
    digits: bool = False  # each digit stands alone
    nfc: bool = False
    ignore_merges: bool = False  # a piece that is a token is taken whole

    def pre_tokenizer(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        if self.digits:
            steps.append({"type": "Digits", "individual_digits": True})
        if self.split:
            pattern = {"Regex": self.split}
            steps.append({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})
        steps.append(_byte_level(use_regex=not self.split))
        return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


_GPT2 = _Splitter()
_DIGITS = _Splitter(digits=True)
_LLAMA3 = _Splitter(split=_LLAMA3_SPLIT, ignore_merges=True)
_QWEN2 = _Splitter(split=_QWEN2_SPLIT, nfc=True)

#: `tokenizer.ggml.pre` -> the splitter.
PRE_TOKENIZERS: dict[str, _Splitter] = {
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
    "refact": _DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}


def tokenizer_from_gguf(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the content of tokenizer.json.

    Raises ModelError if the vocabulary is of another kind, lacks parts, or names a splitter that is not known.
    """
    pieces = metadata.get("tokenizer.ggml.model") == "llama"
    splitter = None if pieces else _splitter(metadata)  # first: it knows what is supported at all
    tokens = _need(metadata, "tokens")
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise ModelError(f"the GGUF metadata have {len(tokens)} tokens and {len(types)} token types.")
    if splitter is None:
        parts = spm_tokenizer(metadata, tokens, types, _need(metadata, "scores"))
    else:
        parts = _byte_level_bpe(splitter, tokens, _need(metadata, "merges"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, types),
        "post_processor": _post_processor(metadata, tokens, pieces),
        **parts,
    }


def _byte_level_bpe(splitter: _Splitter, tokens: list[str], merges: list[str]) -> dict[str, Any]:
    return {
        "normalizer": {"type": "NFC"} if splitter.nfc else None,
        "pre_tokenizer": splitter.pre_tokenizer(),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": splitter.ignore_merges,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def tokenizer_config_from_gguf(metadata: dict[str, Any], context_len: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json: special tokens and the chat template."""
    tokens = _need(metadata, "tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_len,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "add_eos_token": bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        config[f"{name}_token"] = None if index is None else tokens[index]
    types = metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    config["added_tokens_decoder"] = {str(entry.pop("id")): entry for entry in _added_tokens(tokens, types)}
    template = metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def _splitter(metadata: dict[str, Any]) -> _Splitter:
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise ModelError(
            f"the GGUF tokenizer kind {model!r} is not supported; known: gpt2 (byte-level BPE), llama (SentencePiece). "
            "Give the folder or Hub name of the original model as --tokenizer: its tokenizer.json is read then."
        )
    name = metadata.get("tokenizer.ggml.pre")
    splitter = PRE_TOKENIZERS.get(name or "")
    if splitter is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise ModelError(
            f"the GGUF pre-tokenizer {name!r} is not supported; known: {known}. "
            "Give the folder or Hub name of the original model as --tokenizer: its tokenizer.json is read then."
        )
    return splitter


def _need(metadata: dict[str, Any], key: str) -> list[Any]:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if not isinstance(value, list):
        raise ModelError(f"the GGUF metadata lack tokenizer.ggml.{key}. Convert the model to GGUF again.")
    return value


def _added_tokens(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": index,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]


def _post_processor(metadata: dict[str, Any], tokens: list[str], pieces: bool) -> dict[str, Any] | None:
    """Put BOS in front and EOS behind where the metadata ask for them; otherwise add nothing.

    SentencePiece vocabularies (`pieces`) have a BOS in front unless the metadata say otherwise, as in llama.cpp.
    """
    single: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    pair: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    special: dict[str, Any] = {}
    for name in ("bos", "eos"):
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if not metadata.get(f"tokenizer.ggml.add_{name}_token", pieces and name == "bos") or index is None:
            continue
        token = tokens[index]
        special[token] = {"id": token, "ids": [index], "tokens": [token]}
        piece = {"SpecialToken": {"id": token, "type_id": 0}}
        single = [piece, *single] if name == "bos" else [*single, piece]
        pair = [piece, *pair] if name == "bos" else [*pair, piece]
    if not special and pieces:
        return None
    if not special:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
