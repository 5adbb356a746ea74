"""Content hashes of a request's blocks, computed as its tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_native import hash_blocks

if TYPE_CHECKING:
    from array import array

__all__ = ["HASH_BYTES", "BlockHashes"]

HASH_BYTES = 16


class BlockHashes:
    """The chain of one request for one block size. A block is hashed once, when it is full."""

    __slots__ = ("_hashes", "_root", "block_tokens")

    def __init__(self, root: bytes, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._root = root
        self._hashes: list[bytes] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self._hashes):
            raise IndexError(f"block {index} of {len(self)} hashed ones")
        return self._hashes[index]

    def part(self, start: int, end: int) -> list[bytes]:
        """Return the hashes of blocks `start` to `end`, the last one not included."""
        return self._hashes[start:end]

    def extend(self, tokens: array[int]) -> None:
        """Hash the blocks that are full now and were not before. `tokens` are all tokens of the request."""
        done = len(self._hashes)
        full = len(tokens) // self.block_tokens
        if full <= done:
            return
        parent = self._hashes[-1] if done else self._root
        fresh = tokens[done * self.block_tokens : full * self.block_tokens].tobytes()
        joined = hash_blocks(parent, fresh, self.block_tokens)
        self._hashes += [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]
