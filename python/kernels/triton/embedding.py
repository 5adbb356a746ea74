# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Rows of an embedding table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonEmbedding"]

_BLOCK = 1024


@triton.jit
def _lookup_kernel(
    ids: tl.tensor,  # [T] int32
    table: tl.tensor,  # [rows, size]
    out: tl.tensor,  # [T, size]
    first: tl.tensor,
    rows: tl.tensor,
    stride: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row = tl.load(ids + token).to(tl.int64) - first
    width = tl.where((row >= 0) & (row < rows), size, 0)
    value = tl.load(table + row * stride + at, mask=at < width, other=0.0)
    tl.store(out + token * size + at, value, mask=inside)


class TritonEmbedding:
    """EmbeddingOps in Triton."""

    def lookup(self, ids: Tensor, table: Tensor, first: int) -> Tensor:
        count, (rows, size) = ids.shape[0], table.shape
        out = torch.empty((count, size), dtype=table.dtype, device=table.device)
        if count:
            grid = (count, triton.cdiv(size, _BLOCK))
            _lookup_kernel[grid](
                ids, table, out, first, rows, table.stride(0), size, BLOCK=_BLOCK, num_warps=4, **launch_options(table)
            )
        return out
