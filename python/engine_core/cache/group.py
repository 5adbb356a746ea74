"""What a KV group is, and what its manager does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from octavo.engine_core.cache.block_hash import BlockHashes
    from octavo.engine_core.cache.block_pool import BlockPool
    from octavo.engine_core.cache.block_table import BlockTable

__all__ = ["NEVER", "Flight", "GroupManager", "Span", "blocks_ahead", "seal_full_blocks"]

#: A number of tokens that no request reaches.
NEVER = 1 << 62


class Span(NamedTuple):
    """The tokens of one row. Drafts leave it open where the row, and rows in flight before it, begin and end."""

    start: int  # at least so many tokens are computed when the row begins
    end_min: int  # computed after the row if no draft is accepted
    end_max: int  # computed during the row, drafts included


class Flight(NamedTuple):
    """How much of one request can be in flight: bounds what a group holds that forgets."""

    plans: int
    tokens: int  # in all of these plans
    decode_tokens: int  # likewise, of decode rows: drafts and the token itself


class GroupManager(Protocol):
    """Decides which blocks a request holds in one group. One implementation for each kind of KvSpec."""

    @property
    def pool(self) -> BlockPool:
        """The group's blocks."""
        ...

    @property
    def block_tokens(self) -> int:
        """Tokens a block."""
        ...

    def resident_blocks(self, tokens: int) -> int:
        """Return the most blocks that a request of so many tokens holds at any time."""
        ...

    def longest_hit(self, chain: BlockHashes, max_tokens: int) -> int:
        """Return the most tokens, up to `max_tokens`, after which a request can go on from what is cached."""
        ...

    def hit_entries(self, chain: BlockHashes, tokens: int) -> list[int]:
        """Return the table entries for a hit of so many tokens, which `longest_hit` allowed."""
        ...

    def blocks_needed(self, table: BlockTable, span: Span) -> int:
        """Return how many blocks `extend` would allocate."""
        ...

    def extend(self, table: BlockTable, span: Span) -> None:
        """Allocate what the row needs. There must be as many free blocks as `blocks_needed` says."""
        ...

    def skip_left(self, table: BlockTable, computed: int) -> list[int]:
        """Drop what no row needs that begins at `computed` tokens or later. Returns blocks in the order of release."""
        ...

    def covered(self, table: BlockTable) -> int:
        """Return the largest `end_max` of decode rows for which the table suffices as it is."""
        ...

    def next_skip(self, table: BlockTable) -> int:
        """Return the smallest `computed` at which `skip_left` has something to drop."""
        ...


def blocks_ahead(manager: GroupManager, entries: int, held: int, tokens: int) -> int:
    """Return how many more blocks a request allocates until `tokens` are computed, at most at any one time.

    `entries` is the length of its table, `held` how many of these are not null.
    """
    by_length = -(-tokens // manager.block_tokens) - entries
    return max(0, min(by_length, manager.resident_blocks(tokens) - held))


def seal_full_blocks(pool: BlockPool, table: BlockTable, chain: BlockHashes, computed: int) -> list[int]:
    """Enter the blocks that `computed` tokens fill into the index, once each. Returns those that it lacked."""
    start, full = table.sealed, computed // chain.block_tokens
    if full <= start:
        return []
    entered = pool.seal_all(table.ids[start:full], chain.part(start, full))
    table.sealed = full
    return [start + at for at in entered]
