"""Cut the prefill rows of a step into tiles of queries, and tiles into ranges of keys where there are few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.kernels.triton.step import DeviceStep

__all__ = ["TILE_FIELDS", "Tiles", "cut_tiles"]

#: Columns of a tile: first token, tokens, position of the first, row, first key, end of keys, part or -1, and 1 where
#: the tile holds the first of the keys (and with them the sink).
TILE_FIELDS = 8
#: Keys that a part has at least: below that, merging costs more than it gains.
_MIN_PART = 512


@dataclass(frozen=True, slots=True)
class Tiles:
    """Work of the prefill kernel, longest first, and of the merge behind it. On the host."""

    tiles: torch.Tensor  # [n, TILE_FIELDS] int32
    merges: torch.Tensor  # [m, 4] int32: first token, tokens, first part, parts
    parts: int


def cut_tiles(
    step: DeviceStep,
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
