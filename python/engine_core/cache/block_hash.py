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
        self._hashes = bytearray()

    def __len__(self) -> int:
        return len(self._hashes) // HASH_BYTES

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(f"block {index} of {len(self)} hashed ones")
        return bytes(self._hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES])

    def extend(self, tokens: array[int]) -> None:
        """Hash the blocks that are full now and were not before. `tokens` are all tokens of the request."""
        done = len(self)
        full = len(tokens) // self.block_tokens
        if full <= done:
            return
        parent = self[done - 1] if done else self._root
        fresh = tokens[done * self.block_tokens : full * self.block_tokens].tobytes()
        self._hashes += hash_blocks(parent, fresh, self.block_tokens)
