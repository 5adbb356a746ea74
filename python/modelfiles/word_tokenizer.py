"""A tokenizer for models that have none: each id is a word."""

from __future__ import annotations

from typing import Any

__all__ = ["word_tokenizer"]


def word_tokenizer(vocab_size: int, *, strict: bool = False) -> dict[str, Any]:
    """Return a tokenizer.json in which the words w0, w1, ... between spaces are the ids; any other word is w0.

    For random weights from a config alone: prompts are token ids there, and outputs can be read back as such. With
    `strict`, texts with other words cannot be tokenized.
    """
    vocab = {f"w{index}": index for index in range(vocab_size)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "no word" if strict else "w0"},
    }
