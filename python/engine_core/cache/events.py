"""What others may know of the prefix cache: which blocks it can find, from when, until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.wire.frontend import Message

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from octavo.engine_core.cache.block_hash import BlockHashes

__all__ = ["AllBlocksCleared", "BlockRemoved", "BlockStored", "KvEvent", "KvEventLog"]


class BlockStored(Message, frozen=True):
    """Blocks, one after the other in one sequence, can be found from now on. Names and order are vLLM's."""

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None  # None: the first block of a sequence
    token_ids: tuple[int, ...]  # of all the blocks
    block_size: int  # tokens
    lora_id: int | None = None
    medium: str | None = None  # "GPU", "CPU": where the blocks are
    lora_name: str | None = None  # content id of the adapter
    group_idx: int = 0  # KV group; hashes are equal in groups of equal block size


class BlockRemoved(Message, frozen=True):
    """Blocks cannot be found any more."""

    block_hashes: tuple[bytes, ...]
    medium: str | None = None
    group_idx: int = 0


class AllBlocksCleared(Message, frozen=True):
    """No block can be found any more, in any group."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class KvEventLog:
    """Collects events, in order, until somebody takes them. Removals in a row become one event."""

    def __init__(self, medium: str) -> None:
        self._medium = medium
        self._events: list[KvEvent] = []
        self._removed: list[bytes] = []  # not yet an event
        self._removed_group = 0

    def stored(self, group: int, chain: BlockHashes, indices: Sequence[int], tokens: array[int]) -> None:
        """Note that blocks `indices`, ascending, of a sequence were entered."""
        self._close()
        size = chain.block_tokens
        start = 0
        while start < len(indices):
            end = start + 1
            while end < len(indices) and indices[end] == indices[end - 1] + 1:
                end += 1
            first, last = indices[start], indices[end - 1]
            self._events.append(
                BlockStored(
                    block_hashes=tuple(chain[index] for index in range(first, last + 1)),
                    parent_block_hash=chain[first - 1] if first else None,
                    token_ids=tuple(tokens[first * size : (last + 1) * size]),
                    block_size=size,
                    medium=self._medium,
                    group_idx=group,
                )
            )
            start = end

    def removed(self, group: int, digest: bytes) -> None:
        """Note that a block was handed to somebody else."""
        if group != self._removed_group:
            self._close()
            self._removed_group = group
        self._removed.append(digest)

    def cleared(self) -> None:
        """Note that nothing can be found any more. What was noted before, and nobody took, is void."""
        self._events.clear()
        self._removed.clear()
        self._events.append(AllBlocksCleared())

    def take(self) -> list[KvEvent]:
        """Return what was noted since the last call."""
        self._close()
        events, self._events = self._events, []
        return events

    def _close(self) -> None:
        if self._removed:
            self._events.append(BlockRemoved(tuple(self._removed), self._medium, self._removed_group))
            self._removed.clear()
