# mypy: disable-error-code="import-untyped, untyped-decorator"
"""The online softmax over one tile of keys: the part that prefill and decode share.

Peaks are those of the raw products q k; a weight is exp2((score - peak) * factor), one multiply-add and one exp2 a key,
with scale * log2 e in the factor. Milakov and Gimelshein, arXiv 1805.02867; the tiling is that of FlashAttention
(arXiv 2205.14135).
"""

from __future__ import annotations

import triton
import triton.language as tl

from octavo.kernels.triton.common import dot, rounded

__all__ = ["LOG2E", "softmax_factor", "start_softmax", "visit_tile"]

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_factor(scale: tl.tensor, SOFTCAP: tl.constexpr) -> tl.tensor:
    """Return what turns scores, as visit_tile keeps them, into logits of base 2. Capped scores are logits already."""
    if SOFTCAP:
        return 1.0 * LOG2E
    return scale * LOG2E


@triton.jit
def start_softmax(
    sinks: tl.tensor, head: tl.tensor, used: tl.tensor, first: tl.tensor, factor: tl.tensor, SINKS: tl.constexpr
) -> tl.tensor:  # -> [M], [M] float32
    """Return the running peak and total: empty, or holding the sink (a logit without a value) of each row's head."""
    peak = tl.full(head.shape, float("-inf"), tl.float32)
    total = tl.zeros(head.shape, tl.float32)
    if SINKS:
        sink = tl.load(sinks + head, mask=used, other=0.0).to(tl.float32) * LOG2E / factor
        peak = tl.where(first, sink, peak)
        total = tl.where(first, 1.0, total)
    return peak, total


@triton.jit
def visit_tile(
    q: tl.tensor,  # [M, BLOCK_D]
    acc: tl.tensor,  # [M, BLOCK_D] float32
    peak: tl.tensor,  # [M] float32
    total: tl.tensor,  # [M] float32
    k_pages: tl.tensor,  # pointer to the head's first page; a page is [BLOCK_TOKENS, SIZE]
    v_pages: tl.tensor,
    page_stride: tl.tensor,
    table: tl.tensor,  # pointer to the row's block ids
    start: tl.tensor,  # first key of the tile
    length: tl.tensor,  # keys there are
    positions: tl.tensor,  # [M] int32: of the queries
    factor: tl.tensor,  # see softmax_factor
    scale: tl.tensor,
    softcap: tl.tensor,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:
    """Return (acc, peak, total) with the tile's keys in. Without MASKED, every query must see every key of the tile."""
    n = start + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    if MASKED:
        # What lies behind the row's keys may be no number, and what lies behind its table no block.
        block = tl.load(table + n // BLOCK_TOKENS, mask=n < length, other=0)
    else:
        block = tl.load(table + n // BLOCK_TOKENS)
    place = (block.to(tl.int64) * page_stride + (n % BLOCK_TOKENS) * SIZE)[:, None] + d[None, :]
    if MASKED:
        present = (n < length)[:, None] & (d < SIZE)[None, :]
        k = tl.load(k_pages + place, mask=present, other=0.0)
    elif BLOCK_D != SIZE:
        k = tl.load(k_pages + place, mask=(d < SIZE)[None, :], other=0.0)
    else:
        k = tl.load(k_pages + place)
    scores = dot(q, tl.trans(k), tl.zeros((q.shape[0], BLOCK_N), tl.float32))
    if SOFTCAP:
        # cap * tanh(x / cap), with tanh(y) = 1 - 2 / (exp(2 y) + 1)
        scores = (1.0 - 2.0 / (tl.exp2(scores * (2.0 * LOG2E * scale / softcap)) + 1.0)) * softcap
    if MASKED:
        visible = n[None, :] <= positions[:, None]
        if WINDOW:
            visible = visible & (n[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    # A query that has seen no key yet has peak -inf, and -inf - -inf is no number.
    base = tl.where(new_peak == float("-inf"), 0.0, new_peak * factor)
    weights = tl.exp2(scores * factor - base[:, None])
    shrink = tl.exp2(peak * factor - base)
    if MASKED:
        v = tl.load(v_pages + place, mask=present, other=0.0)
    elif BLOCK_D != SIZE:
        v = tl.load(v_pages + place, mask=(d < SIZE)[None, :], other=0.0)
    else:
        v = tl.load(v_pages + place)
    acc = dot(rounded(weights, v.dtype), v, acc * shrink[:, None])
    return acc, new_peak, total * shrink + tl.sum(weights, axis=1)
