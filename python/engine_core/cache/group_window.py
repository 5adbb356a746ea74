"""Layers that see the last `window` tokens, the query itself included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.cache.block_pool import NULL_BLOCK

if TYPE_CHECKING:
    from octavo.engine_core.cache.block_hash import BlockHashes
    from octavo.engine_core.cache.block_pool import BlockPool
    from octavo.engine_core.cache.block_table import BlockTable
    from octavo.engine_core.cache.group import Flight, Span

__all__ = ["WindowGroup"]


class WindowGroup:
    """Drops blocks that lie wholly left of the window of the next query."""

    def __init__(self, pool: BlockPool, block_tokens: int, window: int, flight: Flight) -> None:
        self.pool = pool
        self.block_tokens = block_tokens
        self._window = window
        self._flight = flight

    def resident_blocks(self, tokens: int) -> int:
        """Return the blocks of `tokens` tokens, or of the window and what is in flight, which begin anywhere."""
        most = -(-(self._window - 1 + self._flight.tokens) // self.block_tokens) + 1
        return min(-(-tokens // self.block_tokens), most)

    def longest_hit(self, chain: BlockHashes, max_tokens: int) -> int:
        """Return the last place whose whole window is cached."""
        blocks = min(max_tokens // self.block_tokens, len(chain))
        end = blocks  # candidate: a hit of `end` blocks
        for index in range(blocks - 1, -1, -1):
            if index < self._first_block(end * self.block_tokens):
                break
            if self.pool.find(chain[index]) is None:
                end = index
        return end * self.block_tokens

    def hit_entries(self, chain: BlockHashes, tokens: int) -> list[int]:
        """Return null entries and then the cached blocks of the window before token `tokens`."""
        first = self._first_block(tokens)
        found = [self.pool.find(chain[index]) for index in range(first, tokens // self.block_tokens)]
        return [NULL_BLOCK] * first + [block for block in found if block is not None]

    def blocks_needed(self, table: BlockTable, span: Span) -> int:
        """Return the blocks missing up to the end of the span."""
        return max(0, -(-span.end_max // self.block_tokens) - len(table.ids))

    def extend(self, table: BlockTable, span: Span) -> None:
        """Append blocks up to the end of the span: a chunk writes all its tokens, even those it outruns."""
        table.extend(self.pool.allocate_many(self.blocks_needed(table, span)))

    def skip_left(self, table: BlockTable, computed: int) -> list[int]:
        """Drop the blocks left of the window of the query at position `computed`."""
        return table.drop_before(self._first_block(computed))

    def covered(self, table: BlockTable) -> int:
        """Return the tokens that the table has room for."""
        return len(table.ids) * self.block_tokens

    def next_skip(self, table: BlockTable) -> int:
        """Return the position whose window begins after the leftmost block."""
        return (table.left + 1) * self.block_tokens + self._window - 1

    def _first_block(self, position: int) -> int:
        """Return the index of the leftmost block that the query at `position` sees."""
        return max(0, position - self._window + 1) // self.block_tokens
