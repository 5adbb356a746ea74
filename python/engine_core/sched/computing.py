"""Which blocks are being computed right now, so that equal prompts are computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine_core.request import Request

__all__ = ["MAX_WAITS", "Computing"]

#: Steps that a request waits at most for blocks that others compute.
MAX_WAITS = 64


class Computing:
    """The hashes of blocks that running requests have yet to compute, from their start to the end of their prompt.

    The chains of the smallest block size are used: they find the shortest common prefixes.
    """

    def __init__(self) -> None:
        self._owners: dict[bytes, int] = {}
        self._hashes: dict[int, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, request: Request) -> None:
        """Enter the blocks that a request which starts is going to compute, if nobody else is."""
        if not request.chains:
            return
        chain = request.chains[min(request.chains)]
        first = request.num_computed // chain.block_tokens
        mine = [digest for i in range(first, len(chain)) if (digest := chain[i]) not in self._owners]
        if mine:
            self._owners.update(dict.fromkeys(mine, request.id))
            self._hashes[request.id] = mine

    def remove(self, request: Request) -> None:
        """Forget a request: its prompt is computed, or it does not run any more. Idempotent."""
        for digest in self._hashes.pop(request.id, ()):
            del self._owners[digest]

    def clear(self) -> None:
        """Forget all requests: nobody will find what they compute."""
        self._owners.clear()
        self._hashes.clear()

    def worth_waiting(self, request: Request, hit: int) -> bool:
        """Tell whether the first block that a waiting request would compute is being computed by another."""
        if not request.chains or request.waits >= MAX_WAITS or request.reads_prompt:
            return False
        chain = request.chains[min(request.chains)]
        index = hit // chain.block_tokens
        return index < len(chain) and chain[index] in self._owners
