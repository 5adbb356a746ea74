"""A queue of free block ids that is also the LRU list."""

from __future__ import annotations

__all__ = ["FreeList"]


class FreeList:
    """A doubly linked queue of block ids in [1, num_blocks). All operations but `check` take constant time.

    The front is handed out next. Links live in two flat lists indexed by block id; index 0, the null block, which is
    never free, is the sentinel that joins the ends.
    """

    def __init__(self, num_blocks: int) -> None:
        """Start with all blocks but the null block free, in ascending order."""
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; the null block needs one")
        self._next = [(i + 1) % num_blocks for i in range(num_blocks)]
        self._prev = [(i - 1) % num_blocks for i in range(num_blocks)]
        self._free = [i > 0 for i in range(num_blocks)]
        self._len = num_blocks - 1

    def __len__(self) -> int:
        return self._len

    def __contains__(self, block: int) -> bool:
        return self._free[block]

    def __iter__(self) -> FreeListIterator:
        return FreeListIterator(self._next)

    def count(self, blocks: list[int]) -> int:
        """Return how many of the blocks are free."""
        return sum(map(self._free.__getitem__, blocks))

    def pop_front(self) -> int:
        """Take the block that has been free the longest. Raises IndexError when none is free."""
        block = self._next[0]
        if block == 0:
            raise IndexError("no free block")
        self._unlink(block)
        return block

    def pop_many(self, count: int) -> list[int]:
        """Take so many blocks, those that have been free the longest. Raises IndexError, and takes none, if too few."""
        if count > self._len:
            raise IndexError(f"{count} blocks are wanted, {self._len} are free")
        links, free, at = self._next, self._free, 0
        blocks = []
        for _ in range(count):
            at = links[at]
            free[at] = False
            blocks.append(at)
        first = links[at] if blocks else links[0]
        links[0], self._prev[first] = first, 0
        self._len -= count
        return blocks

    def remove(self, block: int) -> None:
        """Take a given block out of the queue, wherever it is. Raises ValueError if it is not free."""
        if not self._free[block]:
            raise ValueError(f"block {block} is not free")
        self._unlink(block)

    def push_front(self, block: int) -> None:
        """Give a block back, to be handed out next. Raises ValueError if it is free already."""
        self._link(block, 0, self._next[0])

    def push_back(self, block: int) -> None:
        """Give a block back, to be handed out last. Raises ValueError if it is free already."""
        self._link(block, self._prev[0], 0)

    def check(self) -> None:
        """Raise AssertionError unless both directions hold the same blocks, as many as `len` says."""
        forward = list(self)
        assert len(forward) == self._len == sum(self._free), (len(forward), self._len)
        assert all(self._prev[self._next[i]] == i for i in [0, *forward])
        assert all(self._free[i] for i in forward)

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self._free[block] = False
        self._len -= 1

    def _link(self, block: int, before: int, after: int) -> None:
        if block == 0 or self._free[block]:
            raise ValueError(f"block {block} cannot be freed: it is {'free already' if block else 'the null block'}")
        self._prev[block], self._next[block] = before, after
        self._next[before] = self._prev[after] = block
        self._free[block] = True
        self._len += 1


class FreeListIterator:
    """Walks a free list from front to back. The list must not change meanwhile."""

    def __init__(self, links: list[int]) -> None:
        self._links = links
        self._at = 0

    def __iter__(self) -> FreeListIterator:
        return self

    def __next__(self) -> int:
        self._at = self._links[self._at]
        if self._at == 0:
            raise StopIteration
        return self._at
