"""Cut the prefill rows of a step into tiles of queries, and tiles into ranges of keys where there are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MERGE_FIELDS", "TILE_FIELDS", "TileRows", "Tiles", "cut_tiles", "cut_work", "work_room"]

#: Columns of a tile: first token, tokens, position of the first, row, first key, end of keys, part or -1, and 1 where
#: the tile holds the first of the keys (and with them the sink).
TILE_FIELDS = 8
#: Columns of a merge: first token, tokens, first part, parts.
MERGE_FIELDS = 4
#: Keys that a part has at least: below that, merging costs more than it gains.
_MIN_PART = 512


#: Merges that a recorded step has room for: tiles are split only where they are few.
_WORK_MERGES = 16


class TileRows(Protocol):
    """The rows to cut, as in DeviceStep."""

    @property
    def num_decodes(self) -> int: ...
    @property
    def queries(self) -> int: ...
    @property
    def starts(self) -> tuple[int, ...]: ...
    @property
    def counts(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class _HostRows:
    num_decodes: int
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    queries: int = 1


@dataclass(frozen=True, slots=True)
class Tiles:
    """Work of the prefill kernel, longest first, and of the merge behind it. On the host."""

    tiles: torch.Tensor  # [n, TILE_FIELDS] int32
    merges: torch.Tensor  # [m, 4] int32: first token, tokens, first part, parts
    parts: int


def cut_tiles(
    step: TileRows,
    dense: Sequence[int],  # tokens of each row behind the decode rows that need no tile
    tile_tokens: int,
    block_n: int,
    window: int,
    programs: int,  # that fill the device, for one head
) -> Tiles:
    """Return the tiles of the rows behind the decode rows."""
    done, counts = np.asarray(dense, np.int64), np.asarray(step.counts, np.int64)
    start, count = np.asarray(step.starts, np.int64) + done, counts - done
    first_token = step.num_decodes * step.queries + np.cumsum(counts) - counts + done
    per_row = _ceil(count, tile_tokens)
    row = np.repeat(np.arange(len(start)), per_row)
    index = np.arange(len(row)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    begin = index * tile_tokens
    tokens = np.minimum(tile_tokens, count[row] - begin)
    position = start[row] + begin
    token = first_token[row] + begin
    end = position + tokens
    low = np.maximum(position - window + 1, 0) // block_n * block_n if window else np.zeros_like(position)
    columns = [token, tokens, position, row + step.num_decodes, low, end]
    if not len(row) or len(row) * 2 > programs:
        return _whole(columns, end - low)
    ranges = max(1, 2 * programs // len(row))
    each = np.maximum(_ceil(_ceil(end - low, ranges), block_n) * block_n, _MIN_PART)
    parts = _ceil(end - low, each)
    if int(parts.max()) == 1:
        return _whole(columns, end - low)
    return _split(columns, each, parts)


def _ceil(value: np.ndarray, by: np.ndarray | int) -> np.ndarray:
    return -(-value // by)


def _whole(columns: list[np.ndarray], keys: np.ndarray) -> Tiles:
    order = np.argsort(-keys, kind="stable")
    tiles = np.stack([*columns, np.full_like(keys, -1), np.ones_like(keys)], axis=1)[order]
    return Tiles(torch.from_numpy(tiles.astype(np.int32)), torch.zeros((0, 4), dtype=torch.int32), 0)


def _split(columns: list[np.ndarray], each: np.ndarray, parts: np.ndarray) -> Tiles:
    token, tokens, _, _, low, end = columns
    tile = np.repeat(np.arange(len(parts)), parts)
    first = np.cumsum(parts) - parts
    within = np.arange(len(tile)) - first[tile]
    begin = low[tile] + within * each[tile]
    stop = np.minimum(begin + each[tile], end[tile])
    number = np.arange(len(tile))
    split = [column[tile] for column in columns[:4]]
    tiles = np.stack([*split, begin, stop, number, within == 0], axis=1)
    merges = np.stack([token, tokens, first, parts], axis=1)
    return Tiles(torch.from_numpy(tiles.astype(np.int32)), torch.from_numpy(merges.astype(np.int32)), len(tile))


def work_room(tokens: int, tile_tokens: int) -> tuple[int, int]:
    """Return how many tiles and merges a recorded step of `tokens` tokens has room for."""
    return 2 * -(-tokens // tile_tokens) + 32, _WORK_MERGES


def cut_work(
    rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],  # [R] int64 each: starts, counts
    num_decodes: int,  # rows, of one token each, before them
    tile_tokens: int,
    programs: int,  # that fill the device, for one head
    work: np.ndarray[Any, np.dtype[np.int32]],  # [tiles * TILE_FIELDS + merges * MERGE_FIELDS], written
) -> bool:
    """Write tiles and merges of a recorded step; those that are not there have no tokens. Return whether all fit."""
    room = (len(work) - _WORK_MERGES * MERGE_FIELDS) // TILE_FIELDS
    work[:] = 0
    if not len(rows[0]):
        return True
    step = _HostRows(num_decodes, tuple(rows[0].tolist()), tuple(rows[1].tolist()))
    for fill in (min(programs, room // 2), 1):  # 1: tiles are not split
        tiles = cut_tiles(step, [0] * len(step.counts), tile_tokens, _MIN_PART, 0, fill)
        if len(tiles.tiles) <= room and len(tiles.merges) <= _WORK_MERGES:
            work[: tiles.tiles.numel()] = tiles.tiles.numpy().reshape(-1)
            merges = work[room * TILE_FIELDS :]
            merges[: tiles.merges.numel()] = tiles.merges.numpy().reshape(-1)
            return True
    return False
