"""Native parts of octavo, in Rust: the keys of KV blocks; prompts and texts as the server makes them."""

from __future__ import annotations

from octavo_native._native import (
    OutputText,
    Prepared,
    Renderer,
    RenderError,
    __version__,
    hash_blocks,
    root_key,
)

__all__ = ["OutputText", "Prepared", "RenderError", "Renderer", "__version__", "hash_blocks", "root_key"]
