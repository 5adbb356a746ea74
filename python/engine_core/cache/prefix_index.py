"""Where the KV of a hashed block is: one flat dictionary for each group."""

from __future__ import annotations

from collections import defaultdict

__all__ = ["BlockKey", "PrefixIndex"]

#: (group, 16-byte hash of the block's tokens and of all before them).
BlockKey = tuple[int, bytes]


class PrefixIndex:
    """Maps block keys to block ids. A key stays until the pool hands its block to someone else."""

    def __init__(self) -> None:
        self._groups: defaultdict[int, dict[bytes, int]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def __contains__(self, key: BlockKey) -> bool:
        return key[1] in self._groups[key[0]]

    def blocks(self, group: int) -> dict[bytes, int]:
        """Return the dictionary of one group, by hash, to read many at a time. It is the same one for ever."""
        return self._groups[group]

    def get(self, key: BlockKey) -> int | None:
        """Return the block that holds this content, if any."""
        return self._groups[key[0]].get(key[1])

    def add(self, key: BlockKey, block: int) -> bool:
        """Enter a block. Returns False, and changes nothing, if another block holds this content already.

        Tables are append-only, so that a duplicate is kept by its owner and merely not found by others.
        """
        return self._groups[key[0]].setdefault(key[1], block) == block

    def remove(self, key: BlockKey) -> None:
        """Forget a key. Raises KeyError if it is not there."""
        del self._groups[key[0]][key[1]]

    def clear(self) -> None:
        """Forget everything: the content of the pools is gone, or must not be found any more."""
        for blocks in self._groups.values():
            blocks.clear()

    def items(self) -> list[tuple[BlockKey, int]]:
        """Return all entries, for checks."""
        return [((group, digest), block) for group, blocks in self._groups.items() for digest, block in blocks.items()]
