"""Where the KV of a hashed block is: one flat dictionary for all groups."""

from __future__ import annotations

__all__ = ["BlockKey", "PrefixIndex"]

#: (group, 16-byte hash of the block's tokens and of all before them).
BlockKey = tuple[int, bytes]


class PrefixIndex:
    """Maps block keys to block ids. A key stays until the pool hands its block to someone else."""

    def __init__(self) -> None:
        self._blocks: dict[BlockKey, int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._blocks

    def get(self, key: BlockKey) -> int | None:
        """Return the block that holds this content, if any."""
        return self._blocks.get(key)

    def add(self, key: BlockKey, block: int) -> bool:
        """Enter a block. Returns False, and changes nothing, if another block holds this content already.

        Tables are append-only, so that a duplicate is kept by its owner and merely not found by others.
        """
        return self._blocks.setdefault(key, block) == block

    def remove(self, key: BlockKey) -> None:
        """Forget a key. Raises KeyError if it is not there."""
        del self._blocks[key]

    def clear(self) -> None:
        """Forget everything: the content of the pools is gone."""
        self._blocks.clear()

    def items(self) -> list[tuple[BlockKey, int]]:
        """Return all entries, for checks."""
        return list(self._blocks.items())
