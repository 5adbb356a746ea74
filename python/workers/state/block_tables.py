"""Block tables: for each KV group, which blocks hold a slot's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.errors import ProtocolError
from octavo.workers.state.staged import StagedArray

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import StateOps
    from octavo.wire.worker import BlockDiff, KvGroupAlloc

__all__ = ["BlockTables"]


class BlockTables:
    """One [slots, blocks] table for each group. Entries behind what a slot was given are leftovers."""

    def __init__(
        self, groups: tuple[KvGroupAlloc, ...], slots: int, max_model_len: int, ops: StateOps, device: str
    ) -> None:
        self._groups = {group.group: group for group in groups}
        self._tables = {
            group.group: StagedArray(slots, -(-max_model_len // group.block_tokens), ops, device) for group in groups
        }

    def stage(self, diff: BlockDiff) -> None:
        """Note new entries. Raises ProtocolError for a group, a place or a block that does not exist."""
        group, table = self._groups.get(diff.group), self._tables.get(diff.group)
        ids = np.frombuffer(diff.ids, dtype="<i4").astype(np.int32, copy=False)
        if group is None or table is None:
            raise ProtocolError(f"the plan names the KV group {diff.group}, known are {sorted(self._groups)}")
        slots, width = table.array.shape
        if not 0 <= diff.slot < slots or diff.start < 0 or diff.start + len(ids) > width:
            raise ProtocolError(f"slot {diff.slot}: blocks {diff.start} … {diff.start + len(ids)} exceed {width}")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < group.num_blocks:
            raise ProtocolError(f"slot {diff.slot}: a block is not among {group.num_blocks}: {ids.tolist()}")
        table.stage(diff.slot, diff.start, ids)

    def apply(self) -> None:
        """Bring staged entries to the device."""
        for table in self._tables.values():
            table.apply()

    def whole(self, group: int) -> Tensor:  # [S, blocks] int32
        """Return the table of every slot."""
        return self._tables[group].array

    def rows(self, group: int, slots: Tensor, tokens: int) -> Tensor:  # [R] int64 -> [R, blocks] int32
        """Return the tables of `slots`, as wide as `tokens` tokens need."""
        blocks = -(-tokens // self._groups[group].block_tokens)
        return self._tables[group].array[:, :blocks].index_select(0, slots)
