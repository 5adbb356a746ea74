"""Mistral: Llama with a window over every layer, in its first versions."""

from __future__ import annotations

from octavo.models.llama import Llama

__all__ = ["Mistral"]


class Mistral(Llama):
    """MistralForCausalLM of Transformers. All that differs from Llama is in its config."""
