"""Qwen2: Llama with biases on queries, keys and values, and windows on its upper layers where the config asks."""

from __future__ import annotations

from octavo.models.llama import Llama

__all__ = ["Qwen2"]


class Qwen2(Llama):
    """Qwen2ForCausalLM of Transformers. All that differs from Llama is in its config."""
