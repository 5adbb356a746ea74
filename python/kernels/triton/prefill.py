# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Attention of rows with many tokens over the paged cache: one program a tile of queries and key-value head.

The query heads of a group are folded into the rows of a tile, so that each key is read once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two, rounded
from octavo.kernels.triton.softmax import softmax_factor, start_softmax, visit_tile
from octavo.kernels.triton.tiles import MERGE_FIELDS, TILE_FIELDS

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache
    from octavo.kernels.triton.step import DeviceStep

__all__ = ["WORK_TOKENS", "PrefillShape", "PrefillWork", "attend_prefills", "prefill_shape", "work_shape"]

#: Tokens of a tile of a recorded step: rows are short there.
WORK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """How one prefill launch is cut."""

    block_m: int  # queries times heads of a group
    block_n: int  # keys of a tile
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """Tiles on the device (see tiles.Tiles)."""

    tiles: Tensor  # [n, TILE_FIELDS] int32; no tokens: no tile
    merges: Tensor  # [m, MERGE_FIELDS] int32; likewise
    parts: int


def prefill_shape(dim: int, group: int, wide: bool, longest: int) -> PrefillShape:
    """Return the cut for a head size, heads of a group and tokens of the longest row, as measured on an H200.

    `wide`: float32, which has no tensor cores here.
    """
    if wide:
        return PrefillShape(max(32, power_of_two(group)), 32 if dim <= 128 else 16, num_warps=8, num_stages=1)
    if longest * group <= 64:
        return PrefillShape(block_m=64, block_n=64 if dim <= 128 else 32, num_warps=4, num_stages=3)
    block_m = max(128, power_of_two(group))
    if dim <= 128 and group <= 256:
        return PrefillShape(block_m=256, block_n=64, num_warps=8, num_stages=5)
    return PrefillShape(block_m, block_n=32, num_warps=8, num_stages=2)


def work_shape(dim: int, group: int, wide: bool) -> PrefillShape:
    """Return the cut of recorded steps: tiles of WORK_TOKENS tokens, whatever the rows are."""
    block_m = max(16, power_of_two(WORK_TOKENS * group))
    if wide:
        return PrefillShape(block_m, 32 if dim <= 128 else 16, num_warps=8, num_stages=1)
    small = block_m <= 64
    return PrefillShape(block_m, 64 if dim <= 128 else 32, num_warps=4 if small else 8, num_stages=3 if small else 2)


@triton.jit(do_not_specialize=["table_stride"])  # its width is the step's
def _prefill_kernel(
    q: tl.tensor,  # [T, N, D]
    k_pages: tl.tensor,  # [blocks, K, BLOCK_TOKENS, D]
    v_pages: tl.tensor,  # likewise
    tables: tl.tensor,  # [R, blocks] int32
    tiles: tl.tensor,  # [n, FIELDS] int32
    out: tl.tensor,  # [T, N, D], contiguous
    partial: tl.tensor,  # [parts, K, BLOCK_M, BLOCK_D] float32
    stats: tl.tensor,  # [parts, K, 2, BLOCK_M] float32: peak and total
    sinks: tl.tensor,  # [N]
    scale: tl.tensor,
    softcap: tl.tensor,
    q_stride: tl.tensor,
    table_stride: tl.tensor,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    FIELDS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    SINKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    tile = tiles + tl.program_id(0) * FIELDS
    head = tl.program_id(1)
    begin(DEPENDENT)
    first_token = tl.load(tile).to(tl.int64)
    tokens = tl.load(tile + 1)
    if tokens <= 0:  # a recorded step has room for more tiles than there are
        return
    first_position = tl.load(tile + 2)
    row = tl.load(tile + 3).to(tl.int64)
    low = tl.load(tile + 4)
    if WINDOW:  # tiles of a recorded step know no window; a part that lies before it has no keys
        low = tl.maximum(low, tl.maximum(first_position - WINDOW + 1, 0) // BLOCK_N * BLOCK_N)
    high = tl.load(tile + 5)
    part = tl.load(tile + 6).to(tl.int64)
    length = first_position + tokens
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    q_head = head * GROUP + m % GROUP
    used = m < tokens * GROUP
    live = used[:, None] & (d < SIZE)[None, :]
    token = first_token + m // GROUP
    queries = tl.load(q + token[:, None] * q_stride + q_head[:, None] * SIZE + d[None, :], mask=live, other=0.0)
    positions = first_position + m // GROUP
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    factor = softmax_factor(scale, SOFTCAP)
    peak, total = start_softmax(sinks, q_head, used, tl.load(tile + 7) > 0, factor, SINKS)
    page = KV_HEADS * BLOCK_TOKENS * SIZE
    shift = head * BLOCK_TOKENS * SIZE
    table = tables + row * table_stride
    masked = low
    if not WINDOW:
        masked = tl.maximum(low, tl.minimum(high, first_position + 1) // BLOCK_N * BLOCK_N)
        for start in range(low, masked, BLOCK_N):
            acc, peak, total = visit_tile(
                queries, acc, peak, total, k_pages + shift, v_pages + shift, page, table, start, length, positions,
                factor, scale, softcap, SIZE, BLOCK_D, BLOCK_N, BLOCK_TOKENS, WINDOW, SOFTCAP, False,
            )  # fmt: skip
    for start in range(masked, high, BLOCK_N):
        acc, peak, total = visit_tile(
            queries, acc, peak, total, k_pages + shift, v_pages + shift, page, table, start, length, positions,
            factor, scale, softcap, SIZE, BLOCK_D, BLOCK_N, BLOCK_TOKENS, WINDOW, SOFTCAP, True,
        )  # fmt: skip
    if part < 0:
        target = out + (token * (KV_HEADS * GROUP) + q_head)[:, None] * SIZE + d[None, :]
        tl.store(target, rounded(acc / total[:, None], out.dtype.element_ty), mask=live)
    else:
        place = ((part * KV_HEADS + head) * BLOCK_M + m)[:, None] * BLOCK_D + d[None, :]
        tl.store(partial + place, acc, mask=used[:, None] & (d >= 0)[None, :])
        tl.store(stats + (part * KV_HEADS + head) * 2 * BLOCK_M + m, peak * factor)
        tl.store(stats + ((part * KV_HEADS + head) * 2 + 1) * BLOCK_M + m, total)


@triton.jit
def _merge_kernel(
    merges: tl.tensor,  # [m, 4] int32
    partial: tl.tensor,  # [parts, K, BLOCK_M, BLOCK_D] float32
    stats: tl.tensor,  # [parts, K, 2, BLOCK_M] float32
    out: tl.tensor,  # [T, N, D], contiguous
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    FIELDS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    merge = merges + tl.program_id(0) * FIELDS
    head = tl.program_id(1)
    first_token = tl.load(merge).to(tl.int64)
    tokens = tl.load(merge + 1)
    if tokens <= 0:
        return
    first = tl.load(merge + 2).to(tl.int64)
    end = first + tl.load(merge + 3)
    m = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, BLOCK_D)
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, BLOCK_D), tl.float32)
    for start in range(first, end, PARTS):
        part = start + tl.arange(0, PARTS)
        there = (part < end)[:, None] & (m < tokens * GROUP)[None, :]
        at = (part * KV_HEADS + head)[:, None] * 2 * BLOCK_M + m[None, :]
        peaks = tl.load(stats + at, mask=there, other=float("-inf"))  # [PARTS, ROWS]
        totals = tl.load(stats + at + BLOCK_M, mask=there, other=0.0)
        place = ((part * KV_HEADS + head)[:, None] * BLOCK_M + m[None, :])[:, :, None] * BLOCK_D + d[None, None, :]
        values = tl.load(partial + place, mask=there[:, :, None], other=0.0)
        new_peak = tl.maximum(peak, tl.max(peaks, axis=0))
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink = tl.exp2(peak - base)
        weights = tl.exp2(peaks - base[None, :])
        acc = acc * shrink[:, None] + tl.sum(values * weights[:, :, None], axis=0)
        total = total * shrink + tl.sum(totals * weights, axis=0)
        peak = new_peak
    token = first_token + m // GROUP
    target = out + (token * (KV_HEADS * GROUP) + head * GROUP + m % GROUP)[:, None] * SIZE + d[None, :]
    live = (m < tokens * GROUP)[:, None] & (d < SIZE)[None, :]
    tl.store(target, rounded(acc / total[:, None], out.dtype.element_ty), mask=live)


def attend_prefills(
    q: Tensor,  # [T, N, D] dtype
    cache: KvCache,  # [blocks, K, block_tokens, D]
    out: Tensor,  # [T, N, D], contiguous: the rows of the tiles' tokens are written
    step: DeviceStep,
    work: PrefillWork,
    shape: PrefillShape,
    scale: float,
    window: int,  # keys that a query sees, its own included; 0: all
    softcap: float,  # 0: none
    sinks: Tensor | None,  # [N]
) -> None:
    """Write the attention of the tiles' tokens to `out`."""
    heads, dim = cache.k.shape[1], q.shape[2]
    group, block_d = q.shape[1] // heads, max(16, power_of_two(dim))
    common = {"KV_HEADS": heads, "GROUP": group, "SIZE": dim, "BLOCK_D": block_d, "BLOCK_M": shape.block_m}
    options = launch_options(q)
    partial = torch.empty(work.parts * heads * shape.block_m * block_d, dtype=torch.float32, device=q.device)
    stats = torch.empty(work.parts * heads * 2 * shape.block_m, dtype=torch.float32, device=q.device)
    _prefill_kernel[(len(work.tiles), heads)](
        q,
        cache.k,
        cache.v,
        step.tables,
        work.tiles,
        out,
        partial,
        stats,
        q if sinks is None else sinks,
        scale,
        softcap,
        q.stride(0),
        step.tables.stride(0),
        **common,
        FIELDS=TILE_FIELDS,
        BLOCK_N=shape.block_n,
        BLOCK_TOKENS=step.block_tokens,
        WINDOW=window,
        SOFTCAP=softcap != 0.0,
        SINKS=sinks is not None,
        num_warps=shape.num_warps,
        num_stages=shape.num_stages,
        **options,
    )
    if work.parts:
        rows = min(8, shape.block_m)
        grid = (len(work.merges), heads, shape.block_m // rows)
        parts = max(1, 8192 // (rows * block_d))
        _merge_kernel[grid](
            work.merges,
            partial,
            stats,
            out,
            **common,
            ROWS=rows,
            PARTS=parts,
            FIELDS=MERGE_FIELDS,
            num_warps=4,
            **options,
        )
