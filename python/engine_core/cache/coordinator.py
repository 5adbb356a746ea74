"""The KV cache as the scheduler sees it: all groups of all requests."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from octavo.engine_core.cache.block_hash import BlockHashes
from octavo.engine_core.cache.block_table import BlockTable
from octavo.engine_core.cache.domain import domain_root
from octavo.engine_core.cache.fences import Fences
from octavo.engine_core.cache.group import NEVER, GroupManager, Span, blocks_ahead, seal_full_blocks

if TYPE_CHECKING:
    from array import array

    from octavo.engine_core.cache.domain import Base
    from octavo.engine_core.cache.events import KvEventLog
    from octavo.engine_core.cache.prefix_index import PrefixIndex
    from octavo.wire.frontend import Domain

__all__ = ["Chains", "KvCache", "KvTables"]

#: The hash chains of one request, by block size.
Chains = dict[int, BlockHashes]


class KvTables:
    """The block tables of one request, one for each group, and when they next change."""

    __slots__ = ("covered", "dirty", "next_event", "sealing", "tables")

    def __init__(self, tables: list[BlockTable]) -> None:
        self.tables = tables
        self.covered = 0  # decode rows that end here or before need no new block
        self.next_event = 0  # `advance` has something to do from so many computed tokens on
        self.dirty = True  # the workers may not know all entries
        self.sealing = True  # full blocks are entered into the index

    def take_diffs(self) -> list[tuple[int, int, bytes]]:
        """Return (group, first index, packed ids) of what the workers do not know yet, and take it for known."""
        self.dirty = False
        diffs = []
        for group, table in enumerate(self.tables):
            diff = table.take_diff()
            if diff is not None:
                diffs.append((group, *diff))
        return diffs


class KvCache:
    """Owns the groups' blocks, the prefix index and the fences. Nobody else allocates or releases blocks."""

    def __init__(
        self, groups: Sequence[GroupManager], index: PrefixIndex, base: Base | None, log: KvEventLog | None = None
    ) -> None:
        """`base` is what all hash chains have in common; None switches prefix caching off. `log` hears of changes."""
        self.groups = tuple(groups)
        self._index = index
        self._log = log
        self._base = base
        self._fences = Fences()
        self._sizes = sorted({group.block_tokens for group in self.groups})

    @property
    def caching(self) -> bool:
        """Whether prefixes are looked up and kept."""
        return self._base is not None

    def use_weights(self, key: str) -> None:
        """Open chains for other weights from here on: what was computed with those of before is found by nobody."""
        if self._base is not None:
            self._base = dataclasses.replace(self._base, weight_version=key)

    def open_chains(self, domain: Domain | None) -> Chains:
        """Return empty hash chains for a new request of a domain; none with prefix caching off."""
        if self._base is None:
            return {}
        root = domain_root(self._base, domain)
        return {size: BlockHashes(root, size) for size in self._sizes}

    def longest_hit(self, chains: Chains, tokens: array[int]) -> int:
        """Return how many of `tokens` need not be computed: at most all but one, so that there is something to sample.

        Each group can only shorten what the others allow; what none shortens is the longest hit of all.
        """
        if not self.caching:
            return 0
        for chain in chains.values():
            chain.extend(tokens)
        hit = len(tokens) - 1
        while hit > 0:
            agreed = hit
            for group in self.groups:
                agreed = group.longest_hit(chains[group.block_tokens], agreed)
            if agreed == hit:
                break
            hit = agreed
        return max(hit, 0)

    def fits_ever(self, tokens: int) -> bool:
        """Tell whether a request of so many tokens can run when it is alone."""
        return all(group.resident_blocks(tokens) <= group.pool.capacity for group in self.groups)

    def fits_now(self, chains: Chains, hit: int, tokens: int, reserved: Sequence[int]) -> bool:
        """Tell whether `tokens` tokens, of which `hit` are cached, fit beside `reserved` blocks of each group."""
        for group, keep in zip(self.groups, reserved, strict=True):
            entries = group.hit_entries(chains[group.block_tokens], hit) if hit else []
            held = [block for block in entries if block]
            revived = group.pool.count_free(held)
            if blocks_ahead(group, len(entries), len(held), tokens) + revived + keep > group.pool.num_free:
                return False
        return True

    def ahead(self, tables: KvTables, tokens: int) -> list[int]:
        """Return how many more blocks of each group a request allocates until `tokens` are computed."""
        pairs = zip(self.groups, tables.tables, strict=True)
        return [blocks_ahead(group, len(table.ids), table.held, tokens) for group, table in pairs]

    def open(self, chains: Chains, hit: int) -> KvTables:
        """Take the cached blocks of `hit` tokens and return a request's tables."""
        tables = []
        for group in self.groups:
            entries = group.hit_entries(chains[group.block_tokens], hit) if hit else []
            for block in filter(None, entries):
                group.pool.share(block)
            tables.append(BlockTable(entries))
        return self._refresh(KvTables(tables))

    def extend(self, tables: KvTables, span: Span) -> bool:
        """Allocate what a row needs. Returns False, and changes nothing, if some group has too few free blocks."""
        for group, table in zip(self.groups, tables.tables, strict=True):
            if group.blocks_needed(table, span) > group.pool.num_free:
                return False
        for group, table in zip(self.groups, tables.tables, strict=True):
            group.extend(table, span)
        tables.dirty = True
        self._refresh(tables)
        return True

    def extend_waits(self, tables: KvTables, span: Span) -> bool:
        """Tell whether `extend` would succeed if all fences had passed."""
        fenced = Counter(group for group, _ in self._fences.held())
        pairs = zip(self.groups, tables.tables, strict=True)
        return all(g.blocks_needed(table, span) <= g.pool.num_free + fenced[g.pool.group] for g, table in pairs)

    def advance(self, tables: KvTables, chains: Chains, tokens: array[int], computed: int) -> None:
        """Note that `computed` of `tokens` are computed: seal full blocks, drop what no later row needs.

        No fence is needed for what is dropped: rows in flight begin at `computed` or later.
        """
        for group, table in zip(self.groups, tables.tables, strict=True):
            if self.caching and tables.sealing:
                chain = chains[group.block_tokens]
                chain.extend(tokens)
                entered = seal_full_blocks(group.pool, table, chain, computed)
                if self._log is not None and entered:
                    self._log.stored(group.pool.group, chain, entered, tokens)
            skipped = group.skip_left(table, computed)
            if skipped:
                tables.dirty = True
                group.pool.release(skipped)
        self._refresh(tables)

    def close(self, tables: KvTables, last_step: int | None) -> None:
        """Give all blocks back: at once, or, if steps are in flight, when `last_step` has ended."""
        for group, table in zip(self.groups, tables.tables, strict=True):
            blocks = table.take_all()
            if last_step is None:
                group.pool.release(blocks)
            elif blocks:
                self._fences.add(last_step, group.pool, blocks)

    def step_ended(self, step: int) -> None:
        """Release the blocks that waited for `step`."""
        self._fences.ended(step)

    def lose(self) -> None:
        """Forget all content: the device is gone. All tables must be closed."""
        self._fences.release_all()
        self.reset([])

    def reset(self, open_tables: Iterable[KvTables]) -> None:
        """Let nothing that was computed so far be found any more; `open_tables` are those of all running requests.

        They keep their blocks, and enter no more of them: what they compute from here on rests on what they have.
        """
        for tables in open_tables:
            tables.sealing = False
            self._refresh(tables)
        for group in self.groups:
            group.pool.forget()
        self._index.clear()
        if self._log is not None:
            self._log.cleared()

    def num_free(self) -> int:
        """Return the free blocks of all groups."""
        return sum(group.pool.num_free for group in self.groups)

    def num_cached(self) -> int:
        """Return the free blocks of all groups whose content can still be found."""
        return sum(group.pool.num_cached for group in self.groups)

    def num_blocks(self) -> int:
        """Return the blocks of all groups, null blocks not included."""
        return sum(group.pool.capacity for group in self.groups)

    def check(self, open_tables: Iterable[KvTables]) -> None:
        """Raise AssertionError unless every block is free, in exactly the given tables, or behind a fence."""
        held: Counter[tuple[int, int]] = Counter(self._fences.held())
        for tables in open_tables:
            for group, table in zip(self.groups, tables.tables, strict=True):
                blocks = [block for block in table.ids if block]
                assert len(blocks) == table.held and not any(table.ids[: table.left])
                held.update((group.pool.group, block) for block in blocks)
        for group in self.groups:
            mine = {block: count for (number, block), count in held.items() if number == group.pool.group}
            group.pool.check(mine)

    def _refresh(self, tables: KvTables) -> KvTables:
        covered = event = NEVER
        sealing = self.caching and tables.sealing
        for group, table in zip(self.groups, tables.tables, strict=True):
            covered = min(covered, group.covered(table))
            event = min(event, group.next_skip(table))
            if sealing:
                event = min(event, (table.sealed + 1) * group.block_tokens)
        tables.covered, tables.next_event = covered, event
        return tables
