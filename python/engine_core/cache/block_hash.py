"""Content hashes of a request's blocks, computed as its tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo_native import hash_blocks, root_key

if TYPE_CHECKING:
    from array import array

__all__ = ["HASH_BYTES", "BlockHashes", "chain_root"]

HASH_BYTES = 16


def chain_root(model: str, kv_dtype: str, weight_version: str) -> bytes:
    """Return the root of all chains of one engine: whatever changes the KV of equal tokens must be in it."""
    fields = [("model", model), ("kv_dtype", kv_dtype), ("weight_version", weight_version)]
    return root_key([(tag, value.encode()) for tag, value in fields])


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
