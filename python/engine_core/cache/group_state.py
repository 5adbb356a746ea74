"""Layers that fold all tokens into a state of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.engine_core.cache.block_pool import NULL_BLOCK

if TYPE_CHECKING:
    from octavo.engine_core.cache.block_hash import BlockHashes
    from octavo.engine_core.cache.block_pool import BlockPool
    from octavo.engine_core.cache.block_table import BlockTable
    from octavo.engine_core.cache.group import Flight, Span

__all__ = ["StateGroup"]


class StateGroup:
    """Block i holds the state after the last token computed among those of block i.

    A row reads the block that covers the token before it and writes the block of its last token, and each other
    allocated block whose last token it passes. With `checkpoints`, a row also gets a block for the last full block
    that it completes, from which another request with the same prefix can go on.
    """

    def __init__(self, pool: BlockPool, block_tokens: int, flight: Flight, checkpoints: bool) -> None:
        self.pool = pool
        self.block_tokens = block_tokens
        self._flight = flight
        self._checkpoints = checkpoints

    def resident_blocks(self, tokens: int) -> int:
        """Return the block that is read, and those that rows in flight write: chunks two each, decode rows all."""
        most = 2 + 2 * self._flight.plans + -(-self._flight.decode_tokens // self.block_tokens)
        return min(-(-tokens // self.block_tokens), most)

    def longest_hit(self, chain: BlockHashes, max_tokens: int) -> int:
        """Return the last place at which a state is cached."""
        for blocks in range(min(max_tokens // self.block_tokens, len(chain)), 0, -1):
            if self.pool.find(chain[blocks - 1]) is not None:
                return blocks * self.block_tokens
        return 0

    def hit_entries(self, chain: BlockHashes, tokens: int) -> list[int]:
        """Return null entries and then the state after `tokens` tokens."""
        blocks = tokens // self.block_tokens
        state = self.pool.find(chain[blocks - 1]) if blocks else None
        return [NULL_BLOCK] * (blocks - 1) + [state] if state is not None else []

    def blocks_needed(self, table: BlockTable, span: Span) -> int:
        """Return how many of the states to be written have no block yet."""
        ids = table.ids
        return sum(index >= len(ids) or ids[index] == NULL_BLOCK for index in self._written(span))

    def extend(self, table: BlockTable, span: Span) -> None:
        """Give each state to be written a block; entries passed over stay null."""
        for index in self._written(span):
            while len(table.ids) < index:
                table.append(NULL_BLOCK)
            if index == len(table.ids):
                table.append(self.pool.allocate())
            elif table.ids[index] == NULL_BLOCK:
                table.put(index, self.pool.allocate())

    def skip_left(self, table: BlockTable, computed: int) -> list[int]:
        """Drop all states before the one that the row at `computed` reads."""
        return table.drop_before(max(0, computed - 1) // self.block_tokens)

    def covered(self, table: BlockTable) -> int:
        """Return the end of the last block."""
        return len(table.ids) * self.block_tokens

    def next_skip(self, table: BlockTable) -> int:
        """Return the first `computed` that reads a later block than the leftmost."""
        return (table.left + 1) * self.block_tokens + 1

    def _written(self, span: Span) -> range:
        size = self.block_tokens
        first = (span.end_min - 1) // size
        if self._checkpoints:
            first = min(first, max(span.end_min // size - 1, span.start // size))
        return range(first, (span.end_max - 1) // size + 1)
