"""What each kind of group holds, drops and allocates."""

from __future__ import annotations

from octavo.engine_core.cache.block_pool import BlockPool
from octavo.engine_core.cache.block_table import BlockTable
from octavo.engine_core.cache.fences import Fences
from octavo.engine_core.cache.group import Flight, Span
from octavo.engine_core.cache.group_full import FullGroup
from octavo.engine_core.cache.group_state import StateGroup
from octavo.engine_core.cache.group_window import WindowGroup
from octavo.engine_core.cache.prefix_index import PrefixIndex

FLIGHT = Flight(plans=1, tokens=16, decode_tokens=1)


def pool(blocks: int = 50) -> BlockPool:
    return BlockPool(0, blocks, PrefixIndex())


def shape(table: BlockTable) -> str:
    """Return x for a block, . for null."""
    return "".join("x" if block else "." for block in table.ids)


def test_full_keeps_everything() -> None:
    group, table = FullGroup(pool(), 4), BlockTable([])
    group.extend(table, Span(0, 9, 9))
    assert (shape(table), group.covered(table), group.skip_left(table, 9)) == ("xxx", 12, [])
    assert group.blocks_needed(table, Span(9, 13, 13)) == 1


def test_window_drops_what_the_next_query_does_not_see() -> None:
    group, table = WindowGroup(pool(), 4, 5, FLIGHT), BlockTable([])
    group.extend(table, Span(0, 16, 16))
    shapes = []
    for computed in range(6, 15):
        group.pool.release(group.skip_left(table, computed))
        shapes.append(shape(table))
        assert group.next_skip(table) > computed
    # the query at position 8 sees 4..8: the block of 0..3 goes exactly then; at 12 it sees 8..12
    assert shapes == ["xxxx"] * 2 + [".xxx"] * 4 + ["..xx"] * 3
    assert table.held <= group.resident_blocks(16)


def test_a_window_of_one_token_sees_only_itself() -> None:
    group, table = WindowGroup(pool(), 2, 1, FLIGHT), BlockTable([])
    group.extend(table, Span(0, 4, 4))
    group.skip_left(table, 4)
    assert shape(table) == ".."


def test_state_keeps_the_last_block_and_a_checkpoint() -> None:
    group, table = StateGroup(pool(), 4, FLIGHT, checkpoints=True), BlockTable([])
    group.extend(table, Span(0, 14, 14))  # passes 12, ends in block 3
    assert shape(table) == "..xx"
    group.pool.release(group.skip_left(table, 14))
    assert shape(table) == "...x"
    group.extend(table, Span(14, 17, 17))
    assert shape(table) == "...xx"
    group.pool.release(group.skip_left(table, 16))
    assert shape(table) == "...xx", "a row at 16 reads the state after token 15, in block 3"
    group.pool.release(group.skip_left(table, 17))
    assert shape(table) == "....x"


def test_state_without_checkpoints_has_one_block_for_a_chunk() -> None:
    group, table = StateGroup(pool(), 4, FLIGHT, checkpoints=False), BlockTable([])
    group.extend(table, Span(0, 14, 14))
    assert shape(table) == "...x"


def test_state_has_a_block_wherever_drafts_may_end() -> None:
    group, table = StateGroup(pool(), 2, Flight(1, 4, 4), checkpoints=True), BlockTable([])
    group.extend(table, Span(0, 3, 3))
    group.extend(table, Span(3, 4, 7))
    assert shape(table) == "xxxx"
    assert group.blocks_needed(table, Span(3, 4, 7)) == 0


def test_fences_hold_blocks_until_their_step_has_ended() -> None:
    blocks, fences = pool(4), Fences()
    first, second = blocks.allocate(), blocks.allocate()
    fences.add(3, blocks, [first])
    fences.add(5, blocks, [second])
    assert fences.held() == [(0, first), (0, second)]
    fences.ended(4)
    assert (blocks.num_free, fences.held()) == (2, [(0, second)])
    fences.ended(5)
    assert (blocks.num_free, len(fences)) == (3, 0)


def test_state_without_checkpoints_has_one_too() -> None:
    group, table = StateGroup(pool(), 3, Flight(1, 4, 4), checkpoints=False), BlockTable([])
    group.extend(table, Span(0, 3, 3))
    group.extend(table, Span(3, 4, 7))  # may end after 4 tokens, in the second block, or after 7, in the third
    assert shape(table) == "xxx"
