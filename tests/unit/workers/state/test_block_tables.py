from __future__ import annotations

import pytest
import torch

from octavo.errors import ProtocolError
from octavo.kernels.ref.state import RefState
from octavo.wire.codec import pack_tokens
from octavo.wire.worker import BlockDiff, KvGroupAlloc
from octavo.workers.state.block_tables import BlockTables


def tables() -> BlockTables:
    groups = (KvGroupAlloc(0, 4, 10, (0,)), KvGroupAlloc(1, 2, 5, (1,)))
    return BlockTables(groups, 3, 16, RefState(), "cpu")


def diff(group: int, slot: int, start: int, ids: list[int]) -> BlockDiff:
    return BlockDiff(group, slot, start, pack_tokens(ids))


def test_groups_have_tables_of_their_own() -> None:
    t = tables()
    t.stage(diff(0, 1, 0, [3, 4]))
    t.stage(diff(0, 1, 2, [9]))
    t.stage(diff(1, 1, 0, [1, 2, 3]))
    t.apply()
    rows = torch.tensor([1, 0])
    assert t.rows(0, rows, 12).tolist() == [[3, 4, 9], [0, 0, 0]]
    assert t.rows(1, rows, 5).tolist() == [[1, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (diff(2, 0, 0, [1]), r"KV group 2, known are \[0, 1\]"),
        (diff(0, 3, 0, [1]), "slot 3: blocks"),
        (diff(0, 0, 3, [1, 1]), "slot 0: blocks 3 … 5 exceed 4"),
        (diff(0, 0, 0, [10]), r"not among 10: \[10\]"),
        (diff(1, 0, 0, [-1]), r"not among 5: \[-1\]"),
    ],
)
def test_entries_that_cannot_be_are_refused(bad: BlockDiff, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        tables().stage(bad)
