"""The blocks of one request in one KV group."""

from __future__ import annotations

from array import array

from octavo.engine_core.cache.block_pool import NULL_BLOCK

__all__ = ["BlockTable"]


class BlockTable:
    """A list of block ids by index (position // block_tokens), null where nothing is kept.

    Entries are appended, or become null when what they held is not needed any more; nothing else changes.
    """

    __slots__ = ("dirty_from", "held", "ids", "left", "sealed")

    def __init__(self, entries: list[int]) -> None:
        """Start with the blocks of a prefix hit, all of which are sealed."""
        self.ids = array("i", entries)
        self.held = len(entries) - entries.count(NULL_BLOCK)  # entries that are not null
        self.left = len(entries) - self.held if entries else 0  # index before which all entries are null
        self.sealed = len(entries)  # index before which nothing is left to be sealed
        self.dirty_from = 0  # entries from here on are unknown to the workers

    def append(self, block: int) -> None:
        """Put a block, or null, at the end."""
        self.ids.append(block)
        self.held += block != NULL_BLOCK

    def extend(self, blocks: list[int]) -> None:
        """Put blocks, none of them null, at the end."""
        self.ids.extend(blocks)
        self.held += len(blocks)

    def put(self, index: int, block: int) -> None:
        """Give a null entry a block."""
        if self.ids[index] != NULL_BLOCK or block == NULL_BLOCK:
            raise ValueError(f"entry {index} is {self.ids[index]}; only a null entry can become {block}")
        self.ids[index] = block
        self.held += 1
        self.dirty_from = min(self.dirty_from, index)

    def drop_before(self, index: int) -> list[int]:
        """Make all entries before `index` null. Returns the blocks that stood there, the last one first."""
        dropped = []
        for i in range(min(index, len(self.ids)) - 1, self.left - 1, -1):
            block = self.ids[i]
            if block != NULL_BLOCK:
                dropped.append(block)
                self.ids[i] = NULL_BLOCK
                self.dirty_from = min(self.dirty_from, i)
        self.held -= len(dropped)
        self.left = max(self.left, index)
        return dropped

    def take_all(self) -> list[int]:
        """Empty the table. Returns its blocks in the order of release, tail first: more requests share the head."""
        blocks = [block for block in reversed(self.ids) if block != NULL_BLOCK]
        del self.ids[:]
        self.held = self.left = self.sealed = self.dirty_from = 0
        return blocks

    def take_diff(self) -> tuple[int, bytes] | None:
        """Return (first index, packed ids) of what the workers do not know yet, and take it for known."""
        start = self.dirty_from
        if start >= len(self.ids):
            return None
        self.dirty_from = len(self.ids)
        return start, self.ids[start:].tobytes()
