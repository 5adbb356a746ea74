"""Make tokenizer.json from the metadata of GGUF files with a SentencePiece vocabulary (tokenizer kind "llama").

SentencePiece's BPE merges the two neighbours whose joint piece scores best. So the merges, in order, are all ways to
cut a piece into two pieces, best piece first.
"""

from __future__ import annotations

from typing import Any

__all__ = ["spm_tokenizer"]

_NORMAL = 1
_SPACE = "▁"


def spm_tokenizer(metadata: dict[str, Any], tokens: list[str], types: list[int], scores: list[float]) -> dict[str, Any]:
    """Return normalizer, pre-tokenizer, decoder and model of a tokenizer.json."""
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    steps = [{"type": "Prepend", "prepend": _SPACE}, spaces] if prefix else [spaces]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if unknown is None else tokens[int(unknown)],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": _merges(tokens, types, scores),
        },
    }


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> list[list[str]]:
    ids = {token: index for index, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == _NORMAL}
    found: list[tuple[float, int, int, str, str]] = []
    for token, index in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-scores[index], ids[left], ids[right], left, right))
    found.sort()
    return [[left, right] for _, _, _, left, right in found]
