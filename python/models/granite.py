"""Granite: Llama whose embedding, scores, residuals and logits are scaled by numbers in its config."""

from __future__ import annotations

from octavo.models.llama import Llama

__all__ = ["Granite"]


class Granite(Llama):
    """GraniteForCausalLM of Transformers. All that differs from Llama is in its config."""
