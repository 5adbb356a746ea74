"""Native parts of octavo, in Rust: the keys of KV blocks; prompts and texts as the server makes them; grammars."""

from __future__ import annotations

from octavo_native._native import (
    Grammar,
    GrammarError,
    Matcher,
    OutputText,
    Prepared,
    Renderer,
    RenderError,
    Vocabulary,
    __version__,
    accepts,
    check_schema,
    fill_masks,
    hash_blocks,
    root_key,
)

__all__ = [
    "Grammar",
    "GrammarError",
    "Matcher",
    "OutputText",
    "Prepared",
    "RenderError",
    "Renderer",
    "Vocabulary",
    "__version__",
    "accepts",
    "check_schema",
    "fill_masks",
    "hash_blocks",
    "root_key",
]
