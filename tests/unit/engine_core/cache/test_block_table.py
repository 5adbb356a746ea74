"""The blocks of one request in one group."""

from __future__ import annotations

from array import array

import pytest

from octavo.engine_core.cache.block_table import BlockTable


def test_a_hit_is_sealed_and_unknown_to_the_workers() -> None:
    table = BlockTable([0, 0, 5])
    assert (table.held, table.left, table.sealed) == (1, 2, 3)
    assert table.take_diff() == (0, array("i", [0, 0, 5]).tobytes())
    assert table.take_diff() is None


def test_diffs_hold_what_changed() -> None:
    table = BlockTable([])
    for block in (4, 5, 6):
        table.append(block)
    table.take_diff()
    assert table.drop_before(2) == [5, 4]
    table.append(7)
    assert table.take_diff() == (0, array("i", [0, 0, 6, 7]).tobytes())
    assert table.drop_before(2) == []
    assert table.take_diff() is None


def test_blocks_come_back_tail_first() -> None:
    table = BlockTable([])
    for block in (4, 0, 6):
        table.append(block)
    table.put(1, 9)
    assert table.take_all() == [6, 9, 4]
    assert (len(table.ids), table.held) == (0, 0)


def test_only_null_entries_can_be_filled() -> None:
    table = BlockTable([3])
    with pytest.raises(ValueError, match="only a null entry"):
        table.put(0, 4)
