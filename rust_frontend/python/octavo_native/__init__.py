"""Native parts of octavo, in Rust: keys of KV blocks; prompts and texts as the server makes them; parsers; grammars."""

from __future__ import annotations

from octavo_native._native import (
    Event,
    Grammar,
    GrammarError,
    Matcher,
    Message,
    OutputText,
    Parser,
    Prepared,
    Renderer,
    RenderError,
    ToolCall,
    Vocabulary,
    __version__,
    accepts,
    check_schema,
    fill_masks,
    hash_blocks,
    parse,
    parser_names,
    root_key,
)

__all__ = [
    "Event",
    "Grammar",
    "GrammarError",
    "Matcher",
    "Message",
    "OutputText",
    "Parser",
    "Prepared",
    "RenderError",
    "Renderer",
    "ToolCall",
    "Vocabulary",
    "__version__",
    "accepts",
    "check_schema",
    "fill_masks",
    "hash_blocks",
    "parse",
    "parser_names",
    "root_key",
]
