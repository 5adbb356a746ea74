"""Native parts of octavo, in Rust: the keys of KV blocks."""

from __future__ import annotations

from octavo_native._native import __version__, hash_blocks, root_key

__all__ = ["__version__", "hash_blocks", "root_key"]
