"""SmolLM3: Llama without rotation in every fourth layer."""

from __future__ import annotations

from octavo.models.llama import Llama

__all__ = ["SmolLM3"]


class SmolLM3(Llama):
    """SmolLM3ForCausalLM of Transformers. All that differs from Llama is in its config."""
