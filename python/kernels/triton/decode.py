# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Attention of decode rows: keys split over programs, merged by the last one to finish.

The grid is fixed by the number of rows, the loop bounds come from the lengths on the device: a CUDA graph can replay it
at any lengths. (Split keys: Flash-Decoding, Dao et al. 2023.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, num_processors, power_of_two, rounded
from octavo.kernels.triton.softmax import softmax_factor, start_softmax, visit_tile

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache
    from octavo.kernels.triton.step import DeviceStep

__all__ = ["SHORT", "DecodeShape", "Workspace", "attend_decodes", "decode_shape", "rounded_rows"]

#: Parts that a workspace has room for, and of one row and head.
_MAX_PARTS, _MAX_SPLITS = 4096, 64
#: What one more split must gain, as a share of the device.
_SPLIT_COST = 0.002
#: Keys up to which a row is short, and rows times heads up to which small programs win on rows that are not.
SHORT, _FEW_PAIRS = 1024, 64


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """How one decode launch is cut."""

    block_n: int  # keys of a tile
    min_tiles: int  # a split has at least this many tiles
    num_warps: int
    num_stages: int
    resident: int  # programs that a multiprocessor holds at a time
    merge: int = 8192  # values that are merged at a time

    def splits(self, rows: int, heads: int, processors: int, longest: int) -> int:
        """Return over how many programs each row and head is split, from sizes alone: a graph keeps it.

        All programs take about as long, so their number should fill the device a whole number of times; and programs
        without keys are not free. `longest`: as in DeviceStep.
        """
        pairs, slots = rows * heads, processors * self.resident
        most = min(_MAX_SPLITS, max(4, slots // pairs))
        if longest:
            most = min(most, -(-longest // (self.block_n * self.min_tiles)))
            if longest <= SHORT and pairs >= processors:
                most = 1
        best, found = 1, 0.0
        for splits in range(1, most + 1):
            waves = pairs * splits / slots
            filled = waves / math.ceil(waves) - _SPLIT_COST * splits
            if filled > found and (splits == 1 or pairs * splits <= _MAX_PARTS):
                best, found = splits, filled
        return best


def rounded_rows(rows: int, longest: int) -> int:
    """Return a number of rows of which there are few: cuts of steps of any rows are then those of recorded steps.

    `longest`: as in DeviceStep.
    """
    if rows <= 4 or (rows <= 8 and not longest):
        return power_of_two(rows)
    step = 16 if rows <= 16 else 8 if rows <= 256 else 16 if rows <= 512 else 32
    return -(-rows // step) * step


def decode_shape(dim: int, wide: bool, pairs: int, longest: int) -> DecodeShape:
    """Return the cut for a head size and number of rows times heads, as measured on an H200 (docs/gpu.md).

    `wide`: float32; `longest`: as in DeviceStep.
    """
    if wide:
        return DecodeShape(32 if dim <= 128 else 16, min_tiles=4, num_warps=8, num_stages=1, resident=3)
    if dim > 128:
        return DecodeShape(64, min_tiles=2, num_warps=4, num_stages=3, resident=3)
    if pairs <= _FEW_PAIRS and not 0 < longest <= SHORT:
        return DecodeShape(32, min_tiles=4, num_warps=2, num_stages=5, resident=8)
    return DecodeShape(128, min_tiles=2, num_warps=4, num_stages=3, resident=3)


class Workspace:
    """What split programs tell each other. Launches on one stream may share it; graphs keep its addresses."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._parts: dict[int, tuple[Tensor, Tensor]] = {}
        self.counters = torch.zeros(_MAX_PARTS, dtype=torch.int32, device=device)  # all zero between launches

    def parts(self, floats: int) -> tuple[Tensor, Tensor]:
        """Return room for _MAX_PARTS partial results of `floats` float32 each, and for their peaks and totals."""
        if floats not in self._parts:
            self._parts[floats] = (
                torch.empty(_MAX_PARTS * floats, dtype=torch.float32, device=self._device),
                torch.empty(2 * _MAX_PARTS * 128, dtype=torch.float32, device=self._device),
            )
        return self._parts[floats]


@triton.jit(do_not_specialize=["table_stride"])  # its width is the step's
def _decode_kernel(
    q: tl.tensor,  # [R * QUERIES, N, D]
    k_pages: tl.tensor,  # [blocks, K, BLOCK_TOKENS, D]
    v_pages: tl.tensor,  # likewise
    tables: tl.tensor,  # [R, blocks] int32
    lengths: tl.tensor,  # [R] int32; 0: padding; -1: no row, whose token is another's
    out: tl.tensor,  # [R * QUERIES, N, D], contiguous
    partial: tl.tensor,  # [R, K, splits, MERGE_M, BLOCK_D] float32
    stats: tl.tensor,  # [R, K, splits, 2, MERGE_M] float32: peak and total
    counters: tl.tensor,  # [R, K] int32: zero before and after
    sinks: tl.tensor,  # [N]
    scale: tl.tensor,
    softcap: tl.tensor,
    q_stride: tl.tensor,
    table_stride: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SPLIT: tl.constexpr,  # whether a row and head has several programs
    BLOCK_SPLITS: tl.constexpr,  # at least as many, a power of two
    MIN_TILES: tl.constexpr,
    MERGE_M: tl.constexpr,
    MERGE_SPLITS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    splits = tl.num_programs(2)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_head = head * GROUP + m % GROUP
    used = m < GROUP * QUERIES
    live = used[:, None] & (d < SIZE)[None, :]
    token = row * QUERIES + m // GROUP
    target = out + (token * (KV_HEADS * GROUP) + q_head)[:, None] * SIZE + d[None, :]
    dtype: tl.constexpr = out.dtype.element_ty
    begin(DEPENDENT)
    length = tl.load(lengths + row)
    if length <= 0:
        width = tl.where((split == 0) & (length == 0), SIZE, 0)
        zeros = rounded(tl.zeros((BLOCK_M, BLOCK_D), tl.float32), dtype)
        tl.store(target, zeros, mask=used[:, None] & (d < width)[None, :])
        return
    first = 0
    if WINDOW:
        first = tl.maximum(length - QUERIES - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
    tiles = tl.cdiv(length - first, BLOCK_N)
    each = tl.maximum(tl.cdiv(tiles, splits), MIN_TILES)
    active = tl.cdiv(tiles, each)
    if split >= active:
        return
    low = first + split * each * BLOCK_N
    high = tl.minimum(low + each * BLOCK_N, length)
    queries = tl.load(q + token[:, None] * q_stride + q_head[:, None] * SIZE + d[None, :], mask=live, other=0.0)
    positions = length - QUERIES + m // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    factor = softmax_factor(scale, SOFTCAP)
    peak, total = start_softmax(sinks, q_head, used, split == 0, factor, SINKS)
    page = KV_HEADS * BLOCK_TOKENS * SIZE
    shift = head * BLOCK_TOKENS * SIZE
    table = tables + row * table_stride
    for start in range(low, high, BLOCK_N):
        acc, peak, total = visit_tile(
            queries, acc, peak, total, k_pages + shift, v_pages + shift, page, table, start, length, positions, factor,
            scale, softcap, SIZE, BLOCK_D, BLOCK_N, BLOCK_TOKENS, WINDOW, SOFTCAP, True,
        )  # fmt: skip
    if active == 1:
        tl.store(target, rounded(acc / total[:, None], dtype), mask=live)
        return
    if SPLIT:
        group = row * KV_HEADS + head
        part = group * splits + split
        kept = m < MERGE_M
        place = (part * MERGE_M + m)[:, None] * BLOCK_D + d[None, :]
        tl.store(partial + place, acc, mask=kept[:, None] & (d >= 0)[None, :])
        tl.store(stats + part * 2 * MERGE_M + m, peak * factor, mask=kept)
        tl.store(stats + (part * 2 + 1) * MERGE_M + m, total, mask=kept)
        tl.debug_barrier()  # the whole program's stores come before its mark
        if tl.atomic_add(counters + group, 1, sem="acq_rel") == active - 1:
            tl.debug_barrier()
            tl.store(counters + group, 0)
            _merge(
                partial, stats, out, group * splits, active, row, head, KV_HEADS, GROUP, QUERIES, SIZE, BLOCK_D,
                BLOCK_SPLITS, MERGE_M, MERGE_SPLITS,
            )  # fmt: skip


@triton.jit
def _merge(
    partial: tl.tensor,
    stats: tl.tensor,
    out: tl.tensor,
    part: tl.tensor,  # first of the row's and head's parts
    active: tl.tensor,  # how many there are
    row: tl.tensor,
    head: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    MERGE_M: tl.constexpr,
    MERGE_SPLITS: tl.constexpr,
) -> None:
    """Write the mean of the parts, weighted by their peaks and totals. Loads bypass L1, which is not coherent."""
    m = tl.arange(0, MERGE_M)
    d = tl.arange(0, BLOCK_D)
    s = tl.arange(0, BLOCK_SPLITS)
    at = (part + s)[:, None] * (2 * MERGE_M) + m[None, :]
    peaks = tl.load(stats + at, mask=(s < active)[:, None], other=float("-inf"), cache_modifier=".cg")
    peak = tl.max(peaks, axis=0)  # [MERGE_M]
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    totals = tl.load(stats + at + MERGE_M, mask=(s < active)[:, None], other=0.0, cache_modifier=".cg")
    total = tl.sum(totals * tl.exp2(peaks - peak[None, :]), axis=0)
    acc = tl.zeros((MERGE_M, BLOCK_D), tl.float32)
    for begin_split in range(0, active, MERGE_SPLITS):
        i = begin_split + tl.arange(0, MERGE_SPLITS)
        weight = tl.load(
            stats + (part + i)[:, None] * (2 * MERGE_M) + m[None, :],
            mask=(i < active)[:, None],
            other=float("-inf"),
            cache_modifier=".cg",
        )
        place = ((part + i)[:, None] * MERGE_M + m[None, :])[:, :, None] * BLOCK_D + d[None, None, :]
        values = tl.load(partial + place, mask=(i < active)[:, None, None], other=0.0, cache_modifier=".cg")
        acc += tl.sum(values * tl.exp2(weight - peak[None, :])[:, :, None], axis=0)
    token = row * QUERIES + m // GROUP
    target = out + (token * (KV_HEADS * GROUP) + head * GROUP + m % GROUP)[:, None] * SIZE + d[None, :]
    live = (m < GROUP * QUERIES)[:, None] & (d < SIZE)[None, :]
    tl.store(target, rounded(acc / total[:, None], out.dtype.element_ty), mask=live)


def attend_decodes(
    q: Tensor,  # [T, N, D] dtype; of the tokens, the first num_decodes * queries are read
    cache: KvCache,  # [blocks, K, block_tokens, D]
    out: Tensor,  # [T, N, D], contiguous: those tokens' rows are written
    step: DeviceStep,
    workspace: Workspace,
    scale: float,
    window: int,  # keys that a query sees, its own included; 0: all
    softcap: float,  # 0: none
    sinks: Tensor | None,  # [N]
    shape: DecodeShape,
) -> None:
    """Write the attention of the decode rows to `out`; zeros for padding."""
    heads, dim = cache.k.shape[1], q.shape[2]
    folded = q.shape[1] // heads * step.queries
    merge_m, block_d = power_of_two(folded), max(16, power_of_two(dim))
    splits = shape.splits(rounded_rows(step.num_decodes, step.longest), heads, num_processors(q.device), step.longest)
    # Few kernels, since each is compiled: 1, 2 … 4, 5 … 16 and more splits.
    block_splits = 4 if splits <= 4 else 16 if splits <= 16 else _MAX_SPLITS
    partial, stats = workspace.parts(merge_m * block_d)
    _decode_kernel[(step.num_decodes, heads, splits)](
        q,
        cache.k,
        cache.v,
        step.tables,
        step.lengths,
        out,
        partial,
        stats,
        workspace.counters,
        q if sinks is None else sinks,
        scale,
        softcap,
        q.stride(0),
        step.tables.stride(0),
        KV_HEADS=heads,
        GROUP=q.shape[1] // heads,
        QUERIES=step.queries,
        SIZE=dim,
        BLOCK_D=block_d,
        BLOCK_M=max(16, merge_m),
        BLOCK_N=shape.block_n,
        BLOCK_TOKENS=step.block_tokens,
        SPLIT=splits > 1,
        BLOCK_SPLITS=block_splits,
        MIN_TILES=shape.min_tiles,
        MERGE_M=merge_m,
        MERGE_SPLITS=min(block_splits, max(1, shape.merge // (merge_m * block_d))),
        WINDOW=window,
        SOFTCAP=softcap != 0.0,
        SINKS=sinks is not None,
        num_warps=shape.num_warps,
        num_stages=shape.num_stages,
        **launch_options(q),
    )
