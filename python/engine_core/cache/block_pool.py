"""The blocks of one KV group: who is free, who is shared, who is cached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octavo.engine_core.cache.free_list import FreeList

if TYPE_CHECKING:
    from octavo.engine_core.cache.events import KvEventLog
    from octavo.engine_core.cache.prefix_index import PrefixIndex

__all__ = ["NULL_BLOCK", "BlockPool"]

#: Zero-filled, never written, never owned: stands in tables where nothing is kept.
NULL_BLOCK = 0


class BlockPool:
    """Owns the block ids of one group. A block is free exactly when its reference count is 0.

    Free blocks that are hashed stay findable in the index until they are handed out: they go to the back of the free
    list, which makes it the LRU list. Blocks without a hash go to the front, to be used again while they are warm.
    """

    def __init__(self, group: int, num_blocks: int, index: PrefixIndex, log: KvEventLog | None = None) -> None:
        """`log` hears of blocks that cannot be found any more."""
        self.group = group
        self.num_blocks = num_blocks
        self._index = index
        self._found = index.blocks(group)
        self._log = log
        self._free = FreeList(num_blocks)
        self._refs = [0] * num_blocks
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._cached = 0  # free ones with a hash

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now, cached ones included."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """Free blocks whose content can still be found."""
        return self._cached

    @property
    def capacity(self) -> int:
        """Blocks that can be allocated when nobody holds any."""
        return self.num_blocks - 1

    def count_free(self, blocks: list[int]) -> int:
        """Return how many of the blocks nobody holds."""
        return self._free.count(blocks)

    def find(self, digest: bytes) -> int | None:
        """Return the block that holds the content with this hash, without taking it."""
        return self._found.get(digest)

    def find_all(self, digests: list[bytes]) -> list[int | None]:
        """Return the block of each hash, None where there is none."""
        return list(map(self._found.get, digests))

    def allocate(self) -> int:
        """Hand out one block, which loses its hash. Raises IndexError when none is free."""
        block = self._free.pop_front()
        digest = self._hashes[block]
        if digest is not None:
            self._lose(block, digest)
        self._refs[block] = 1
        return block

    def allocate_many(self, count: int) -> list[int]:
        """Hand out `count` blocks, as `allocate` does. Raises IndexError, and hands out none, if there are too few."""
        blocks = self._free.pop_many(count)
        hashes, refs = self._hashes, self._refs
        for block in blocks:
            digest = hashes[block]
            if digest is not None:
                self._lose(block, digest)
            refs[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Take a cached block for one more owner. It must be in the index."""
        if self._hashes[block] is None:
            raise ValueError(f"block {block} of group {self.group} is not cached")
        if self._refs[block] == 0:
            self._free.remove(block)
            self._cached -= 1
        self._refs[block] += 1

    def seal(self, block: int, digest: bytes) -> bool:
        """Enter a block, full and computed, into the index. Its owner never writes it again.

        Returns False if another block holds this content already.
        """
        return bool(self.seal_all([block], [digest]))

    def seal_all(self, blocks: Sequence[int], digests: Sequence[bytes]) -> list[int]:
        """Enter several blocks, null ones left out; return the positions in `blocks` of those that the index lacked."""
        refs, hashes, found = self._refs, self._hashes, self._found
        entered = []
        for at, (block, digest) in enumerate(zip(blocks, digests, strict=True)):
            if block == NULL_BLOCK:
                continue
            if refs[block] == 0 or hashes[block] is not None:
                raise ValueError(f"block {block} of group {self.group} cannot be sealed: it is free or sealed already")
            if found.setdefault(digest, block) == block:
                hashes[block] = digest
                entered.append(at)
        return entered

    def release(self, blocks: Iterable[int]) -> None:
        """Give blocks back, in the order in which they may be handed out again (tail of a sequence first)."""
        for block in blocks:
            if block == NULL_BLOCK or self._refs[block] == 0:
                raise ValueError(f"block {block} of group {self.group} is released by someone who does not hold it")
            self._refs[block] -= 1
            if self._refs[block] == 0:
                if self._hashes[block] is None:
                    self._free.push_front(block)
                else:
                    self._free.push_back(block)
                    self._cached += 1

    def _lose(self, block: int, digest: bytes) -> None:
        self._index.remove((self.group, digest))
        self._hashes[block] = None
        self._cached -= 1
        if self._log is not None:
            self._log.removed(self.group, digest)

    def forget(self) -> None:
        """Take all hashes off: what the blocks hold must not be found any more. The index is cleared apart.

        Blocks stay with those who hold them.
        """
        self._hashes = [None] * self.num_blocks
        self._cached = 0

    def check(self, held: dict[int, int]) -> None:
        """Raise AssertionError unless reference counts equal `held` (block to number of owners) and nothing is lost."""
        self._free.check()
        for block in range(1, self.num_blocks):
            refs = self._refs[block]
            assert refs == held.get(block, 0), (
                f"group {self.group} block {block}: {refs} refs, {held.get(block, 0)} held"
            )
            assert (refs == 0) == (block in self._free), f"group {self.group} block {block}: {refs} refs"
            digest = self._hashes[block]
            assert digest is None or self._index.get((self.group, digest)) == block, f"block {block} is not indexed"
        assert self._refs[NULL_BLOCK] == 0 and self._hashes[NULL_BLOCK] is None
        assert self._cached == sum(self._hashes[block] is not None for block in self._free)
        indexed = sum(1 for (group, _), _block in self._index.items() if group == self.group)
        assert indexed == sum(digest is not None for digest in self._hashes)
