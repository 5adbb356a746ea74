"""The block pool against a model: owners counted one by one, cached content remembered by hash."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.engine_core.cache.block_pool import BlockPool
from octavo.engine_core.cache.prefix_index import PrefixIndex


class PoolMachine(RuleBasedStateMachine):
    """Allocates, seals, shares and releases at random."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.pool = BlockPool(3, 7, self.index)
        self.owned: list[int] = []  # one entry for each owner of a block
        self.sealed: set[int] = set()  # blocks that were sealed by their owner, found or not
        self.content: dict[bytes, int] = {}
        self.clock = 0

    @rule()
    def allocate(self) -> None:
        if len(set(self.owned)) == self.pool.capacity:
            with pytest.raises(IndexError):
                self.pool.allocate()
            return
        cached_free = [block for block in self.content.values() if block not in self.owned]
        block = self.pool.allocate()
        assert block not in self.owned
        assert block != 0
        if block in cached_free:
            assert len(cached_free) == self.pool.num_free + 1, "a cached block went while another was free"
        self.content = {digest: held for digest, held in self.content.items() if held != block}
        self.sealed.discard(block)
        self.owned.append(block)

    @rule(count=st.integers(0, 4))
    def allocate_many(self, count: int) -> None:
        free = self.pool.num_free
        if count > free:
            with pytest.raises(IndexError):
                self.pool.allocate_many(count)
            return
        taken = self.pool.allocate_many(count)
        assert len(set(taken)) == count
        assert not set(taken) & {0, *self.owned}
        self.content = {digest: held for digest, held in self.content.items() if held not in taken}
        self.sealed -= set(taken)
        self.owned += taken

    @precondition(lambda self: set(self.owned) - self.sealed)
    @rule(data=st.data(), same=st.booleans())
    def seal(self, data: st.DataObject, same: bool) -> None:
        block = data.draw(st.sampled_from(sorted(set(self.owned) - self.sealed)))
        digest = next(iter(self.content)) if same and self.content else self.clock.to_bytes(16, "little")
        self.clock += 1
        self.pool.seal(block, digest)
        self.sealed.add(block)
        self.content.setdefault(digest, block)

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        digest = data.draw(st.sampled_from(sorted(self.content)))
        block = self.pool.find(digest)
        assert block == self.content[digest]
        self.pool.share(block)
        self.sealed.add(block)
        self.owned.append(block)

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.owned))
        self.owned.remove(block)
        self.pool.release([block])
        if block not in self.owned:
            self.sealed = {b for b in self.sealed if b != block or b in self.content.values()}

    @rule(block=st.integers(0, 6))
    def double_free(self, block: int) -> None:
        if block not in self.owned:
            with pytest.raises(ValueError, match="does not hold"):
                self.pool.release([block])

    @invariant()
    def nothing_lost(self) -> None:
        self.pool.check(Counter(self.owned))
        assert self.pool.num_free == self.pool.capacity - len(set(self.owned))
        for digest, block in self.content.items():
            assert self.pool.find(digest) == block


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40)


def test_unhashed_blocks_are_used_first_and_hashed_ones_in_lru_order() -> None:
    pool = BlockPool(0, 6, PrefixIndex())
    blocks = [pool.allocate() for _ in range(5)]
    for block in blocks[:3]:
        pool.seal(block, bytes([block]) * 16)
    pool.release([blocks[2], blocks[0], blocks[1], blocks[3], blocks[4]])
    assert [pool.allocate() for _ in range(5)] == [blocks[4], blocks[3], blocks[2], blocks[0], blocks[1]]
