"""Blocks that are given back while plans in flight may still write to them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine_core.cache.block_pool import BlockPool

__all__ = ["Fences"]


class Fences:
    """Holds blocks back until the step that was the last one sent when they were freed has ended."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, BlockPool, list[int]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, step: int, pool: BlockPool, blocks: list[int]) -> None:
        """Release `blocks` when `step` has ended. Steps must not decrease from call to call."""
        self._waiting.append((step, pool, blocks))

    def ended(self, step: int) -> None:
        """Release what waited for `step` or an earlier one."""
        while self._waiting and self._waiting[0][0] <= step:
            _, pool, blocks = self._waiting.popleft()
            pool.release(blocks)

    def release_all(self) -> None:
        """Release everything: nothing is in flight any more."""
        self.ended(self._waiting[-1][0] if self._waiting else 0)

    def held(self) -> list[tuple[int, int]]:
        """Return (group, block) of all that wait, for checks."""
        return [(pool.group, block) for _, pool, blocks in self._waiting for block in blocks]
