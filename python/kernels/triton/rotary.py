# mypy: disable-error-code="import-untyped, untyped-decorator"
"""One kernel from the qkv product to the cache: optional norm of queries and keys, rotation, write of keys, values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two, rounded

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache, QkNorm
    from octavo.kernels.triton.step import DeviceStep

__all__ = ["rotate_and_write"]

#: Heads that one program handles.
_HEADS = 8


@triton.jit
def _turn(
    first: tl.tensor,
    second: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    at: tl.tensor,
    inside: tl.tensor,
    HALF: tl.constexpr,
    dtype: tl.constexpr,
) -> tl.tensor:  # [HEADS, HALF] twice -> the same, rotated
    """Return x * cos + rotate_half(x) * sin of the two halves, rounded where Transformers rounds.

    Products are rounded to the type of cos and sin, which is x's or float32.
    """
    inner: tl.constexpr = cos.dtype.element_ty
    cos1 = tl.load(cos + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    cos2 = tl.load(cos + HALF + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin1 = tl.load(sin + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin2 = tl.load(sin + HALF + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    left = rounded(first * cos1, inner).to(tl.float32) + rounded(-second * sin1, inner).to(tl.float32)
    right = rounded(second * cos2, inner).to(tl.float32) + rounded(first * sin2, inner).to(tl.float32)
    return rounded(left, dtype), rounded(right, dtype)


@triton.jit
def _normed(
    first: tl.tensor,
    second: tl.tensor,
    weight: tl.tensor,
    eps: tl.tensor,
    at: tl.tensor,
    inside: tl.tensor,
    HALF: tl.constexpr,
    dtype: tl.constexpr,
) -> tl.tensor:  # [HEADS, HALF] float32 twice -> the same, of unit root mean square and scaled
    scale1 = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    scale2 = tl.load(weight + HALF + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    square = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
    inverse = (1.0 / tl.sqrt_rn(square / (2 * HALF) + eps))[:, None]
    first, second = first * inverse, second * inverse
    if weight.dtype.element_ty == dtype:  # a float32 weight is multiplied before rounding
        first, second = rounded(first, dtype).to(tl.float32), rounded(second, dtype).to(tl.float32)
    left, right = rounded(first * scale1, dtype), rounded(second * scale2, dtype)
    return left.to(tl.float32), right.to(tl.float32)


@triton.jit(do_not_specialize=["table_stride"])  # its width is the step's
def _rotate_and_write_kernel(
    q: tl.tensor,  # [T, N, D]
    k: tl.tensor,  # [T, K, D]: overwritten with the rotated keys, where KEEP_K
    v: tl.tensor,  # [T, K, D]
    cos: tl.tensor,  # [T, D]: q's dtype or float32
    sin: tl.tensor,  # [T, D] likewise
    q_weight: tl.tensor,  # [D]
    k_weight: tl.tensor,  # [D]
    eps: tl.tensor,
    out: tl.tensor,  # [T, N, D], contiguous
    k_pages: tl.tensor,  # [blocks, K, BLOCK_TOKENS, D]
    v_pages: tl.tensor,  # likewise
    tables: tl.tensor,  # [R, blocks] int32
    rows: tl.tensor,  # [T] int64
    positions: tl.tensor,  # [T] int64; negative: padding, nothing is written to the cache
    q_stride: tl.tensor,
    k_stride: tl.tensor,
    v_stride: tl.tensor,
    cos_stride: tl.tensor,
    table_stride: tl.tensor,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    Q_PROGRAMS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    NORM: tl.constexpr,
    KEEP_K: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    at = tl.arange(0, BLOCK_HALF)
    within = at < HALF
    dtype: tl.constexpr = q.dtype.element_ty
    dim: tl.constexpr = 2 * HALF
    begin(DEPENDENT)
    position = tl.load(positions + token)
    cos += token * cos_stride
    sin += token * cos_stride
    # Loads do not wait for the position: most of the time goes to latency. What padding holds may be no number.
    if part < Q_PROGRAMS:
        head = part * HEADS + tl.arange(0, HEADS)
        inside = (head < Q_HEADS)[:, None] & within[None, :]
        source = q + token * q_stride + head[:, None] * dim + at[None, :]
        first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            first, second = _normed(first, second, q_weight, eps, at, within, HALF, dtype)
        left, right = _turn(first, second, cos, sin, at, within, HALF, dtype)
        target = out + token * Q_HEADS * dim + head[:, None] * dim + at[None, :]
        tl.store(target, tl.where(position >= 0, left, tl.zeros_like(left)), mask=inside)
        tl.store(target + HALF, tl.where(position >= 0, right, tl.zeros_like(right)), mask=inside)
    else:
        head = (part - Q_PROGRAMS) * HEADS + tl.arange(0, HEADS)
        inside = (head < KV_HEADS)[:, None] & within[None, :]
        offset = head[:, None] * dim + at[None, :]
        source = k + token * k_stride + offset
        k_first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        k_second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)
        v_first = tl.load(v + token * v_stride + offset, mask=inside)
        v_second = tl.load(v + token * v_stride + offset + HALF, mask=inside)
        row = tl.load(rows + token)
        if position >= 0:
            block = tl.load(tables + row * table_stride + position // BLOCK_TOKENS).to(tl.int64)
            page = (block * KV_HEADS + head[:, None]) * BLOCK_TOKENS + position % BLOCK_TOKENS
            place = page * dim + at[None, :]  # int64: a cache has more than 2**31 elements
            tl.store(v_pages + place, v_first, mask=inside)
            tl.store(v_pages + place + HALF, v_second, mask=inside)
            if NORM:
                k_first, k_second = _normed(k_first, k_second, k_weight, eps, at, within, HALF, dtype)
            k_left, k_right = _turn(k_first, k_second, cos, sin, at, within, HALF, dtype)
            tl.store(k_pages + place, k_left, mask=inside)
            tl.store(k_pages + place + HALF, k_right, mask=inside)
            if KEEP_K:
                tl.store(source, k_left, mask=inside)
                tl.store(source + HALF, k_right, mask=inside)


def rotate_and_write(
    q: Tensor,  # [T, N, D] dtype; the last two dimensions contiguous
    k: Tensor,  # [T, K, D] likewise
    v: Tensor,  # [T, K, D] likewise
    cos: Tensor,  # [T, D] dtype or float32
    sin: Tensor,  # [T, D] likewise
    cache: KvCache,  # [blocks, K, block_tokens, D]
    step: DeviceStep,
    norm: QkNorm | None,
    keep_k: bool,
) -> Tensor:  # [T, N, D], contiguous
    """Return q, normed and rotated; put k, likewise, and v into the cache. With `keep_k`, k is overwritten too."""
    count, queries, dim = q.shape
    heads = k.shape[1]
    out = torch.empty((count, queries, dim), dtype=q.dtype, device=q.device)
    if not count:
        return out
    wide = min(_HEADS, power_of_two(max(queries, heads)))
    q_programs = triton.cdiv(queries, wide)
    _rotate_and_write_kernel[(count, q_programs + triton.cdiv(heads, wide))](
        q,
        k,
        v,
        cos,
        sin,
        q if norm is None else norm.q,
        k if norm is None else norm.k,
        0.0 if norm is None else norm.eps,
        out,
        cache.k,
        cache.v,
        step.tables,
        step.rows,
        step.positions,
        q.stride(0),
        k.stride(0),
        v.stride(0),
        cos.stride(0),
        step.tables.stride(0),
        Q_HEADS=queries,
        KV_HEADS=heads,
        Q_PROGRAMS=q_programs,
        HALF=dim // 2,
        BLOCK_HALF=power_of_two(dim // 2),
        HEADS=wide,
        BLOCK_TOKENS=step.block_tokens,
        NORM=norm is not None,
        KEEP_K=keep_k,
        num_warps=max(1, min(8, wide * dim // 512)),
        enable_fp_fusion=False,  # a fused multiply-add would skip the rounding of its product
        **launch_options(q),
    )
    return out
