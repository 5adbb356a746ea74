"""Layers that see all tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.cache.group import NEVER

if TYPE_CHECKING:
    from octavo.engine_core.cache.block_hash import BlockHashes
    from octavo.engine_core.cache.block_pool import BlockPool
    from octavo.engine_core.cache.block_table import BlockTable
    from octavo.engine_core.cache.group import Span

__all__ = ["FullGroup"]

#: Blocks that are looked up at a time: a miss at the start costs no more.
_SLAB = 64


class FullGroup:
    """Keeps every block until the request ends."""

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        self.pool = pool
        self.block_tokens = block_tokens

    def resident_blocks(self, tokens: int) -> int:
        """Return the blocks of `tokens` tokens."""
        return -(-tokens // self.block_tokens)

    def longest_hit(self, chain: BlockHashes, max_tokens: int) -> int:
        """Return the tokens of the longest run of cached blocks from the start."""
        blocks = min(max_tokens // self.block_tokens, len(chain))
        for start in range(0, blocks, _SLAB):
            found = self.pool.find_all(chain.part(start, min(start + _SLAB, blocks)))
            if None in found:
                return (start + found.index(None)) * self.block_tokens
        return blocks * self.block_tokens

    def hit_entries(self, chain: BlockHashes, tokens: int) -> list[int]:
        """Return the cached blocks of the first `tokens` tokens."""
        found = self.pool.find_all(chain.part(0, tokens // self.block_tokens))
        return [block for block in found if block is not None]

    def blocks_needed(self, table: BlockTable, span: Span) -> int:
        """Return the blocks missing up to the end of the span."""
        return max(0, -(-span.end_max // self.block_tokens) - len(table.ids))

    def extend(self, table: BlockTable, span: Span) -> None:
        """Append blocks up to the end of the span."""
        table.extend(self.pool.allocate_many(self.blocks_needed(table, span)))

    def skip_left(self, table: BlockTable, computed: int) -> list[int]:
        """Drop nothing."""
        return []

    def covered(self, table: BlockTable) -> int:
        """Return the tokens that the table has room for."""
        return len(table.ids) * self.block_tokens

    def next_skip(self, table: BlockTable) -> int:
        """Return never."""
        return NEVER
