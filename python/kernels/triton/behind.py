# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Attention of a long chunk behind a cached prefix: cuDNN over the prefix, made dense, and over the chunk, then merged.

Attention to a set of keys is the mean of attention to its parts, weighted by their sums of exponentials, which cuDNN
returns as logarithms (Flash-Decoding, Dao et al. 2023, merges its splits so).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two, rounded

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache
    from octavo.kernels.triton.fresh import FreshRun

__all__ = ["attend_behind"]

#: Tokens that one program merges.
_TOKENS = 16


@triton.jit
def _gather_pages_kernel(
    k_pages: tl.tensor,  # [blocks, K, BLOCK_TOKENS, D]
    v_pages: tl.tensor,  # likewise
    table: tl.tensor,  # [blocks of the row] int32
    k: tl.tensor,  # [L, K, D], contiguous
    v: tl.tensor,  # likewise
    KV_HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    index = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    block = tl.load(table + index).to(tl.int64)
    token = tl.arange(0, BLOCK_TOKENS)
    d = tl.arange(0, BLOCK_D)
    inside = (token >= 0)[:, None] & (d < SIZE)[None, :]
    source = ((block * KV_HEADS + head) * BLOCK_TOKENS + token)[:, None] * SIZE + d[None, :]
    target = ((index * BLOCK_TOKENS + token) * KV_HEADS + head)[:, None] * SIZE + d[None, :]
    tl.store(k + target, tl.load(k_pages + source, mask=inside), mask=inside)
    tl.store(v + target, tl.load(v_pages + source, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["count"])
def _merge_two_kernel(
    first: tl.tensor,  # [T, N, D], contiguous
    second: tl.tensor,  # likewise
    first_sum: tl.tensor,  # [N, T] float32: natural logarithms of the sums of exponentials
    second_sum: tl.tensor,  # likewise
    out: tl.tensor,  # [T, N, D], contiguous
    count: tl.tensor,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TOKENS: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    there = token < count
    at = head.to(tl.int64) * count + token
    # exp(a) / (exp(a) + exp(b)); a causal chunk and a prefix both have keys, so neither sum is 0
    share = 1.0 / (1.0 + tl.exp(tl.load(second_sum + at, mask=there) - tl.load(first_sum + at, mask=there)))
    place = (token * HEADS + head)[:, None] * SIZE + d[None, :]
    inside = there[:, None] & (d < SIZE)[None, :]
    left = tl.load(first + place, mask=inside).to(tl.float32)
    right = tl.load(second + place, mask=inside).to(tl.float32)
    tl.store(out + place, rounded(right + (left - right) * share[:, None], out.dtype.element_ty), mask=inside)


def attend_behind(
    q: Tensor,  # [T, N, D] bfloat16, contiguous
    k: Tensor,  # [T, K, D], rotated
    v: Tensor,  # [T, K, D]
    cache: KvCache,  # [blocks, K, block_tokens, D]
    table: Tensor,  # [blocks] int32: of the run's row
    run: FreshRun,
    scale: float,
    out: Tensor,  # [T, N, D], contiguous
) -> None:
    """Write the attention of the run's dense tokens to `out`. The run has one row, and a prefix of whole blocks."""
    mine = slice(run.first_token, run.first_token + run.dense)
    block_tokens = cache.k.shape[2]
    old_k, old_v = _gather(cache, table[: run.prefix // block_tokens])
    before, before_sum = _dense(q[mine], old_k, old_v, causal=False, scale=scale)
    own, own_sum = _dense(q[mine], k[mine], v[mine], causal=True, scale=scale)
    heads, dim = q.shape[1:]
    _merge_two_kernel[(triton.cdiv(run.dense, _TOKENS), heads)](
        before,
        own,
        before_sum,
        own_sum,
        out[mine],
        run.dense,
        HEADS=heads,
        SIZE=dim,
        BLOCK_D=power_of_two(dim),
        TOKENS=_TOKENS,
        num_warps=4,
        **launch_options(q),
    )


def _gather(cache: KvCache, table: Tensor) -> tuple[Tensor, Tensor]:  # [n] int32 -> [n * block_tokens, K, D], twice
    """Return the keys and values of whole blocks, token after token."""
    _, heads, block_tokens, dim = cache.k.shape
    k, v = (
        torch.empty((table.shape[0] * block_tokens, heads, dim), dtype=pages.dtype, device=pages.device)
        for pages in (cache.k, cache.v)
    )
    _gather_pages_kernel[(table.shape[0], heads)](
        cache.k,
        cache.v,
        table,
        k,
        v,
        KV_HEADS=heads,
        SIZE=dim,
        BLOCK_D=power_of_two(dim),
        BLOCK_TOKENS=block_tokens,
        num_warps=2,
        **launch_options(k),
    )
    return k, v


def _dense(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:  # [T, N, D], [L, K, D], [L, K, D] -> [T, N, D] contiguous, [N, T] float32
    """Return the attention, and the natural logarithm of each query's sum of exponentials."""
    rows = [part.unsqueeze(0).transpose(1, 2) for part in (q, k, v)]
    if q.is_cuda:
        found = torch.ops.aten._scaled_dot_product_cudnn_attention(*rows, None, True, 0.0, causal, False, scale=scale)
        return found[0][0].transpose(0, 1).contiguous(), found[1].view(q.shape[1], q.shape[0])
    group = q.shape[1] // k.shape[1]
    wide_q, wide_k, wide_v = (part[0].to(torch.float32) for part in rows)
    scores = wide_q @ wide_k.repeat_interleave(group, 0).transpose(1, 2) * scale  # [N, T, L]
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).to(torch.bool), float("-inf"))
    out = scores.softmax(-1) @ wide_v.repeat_interleave(group, 0)
    return out.transpose(0, 1).to(q.dtype).contiguous(), scores.logsumexp(-1)
