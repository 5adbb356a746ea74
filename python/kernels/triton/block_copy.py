# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Copies of KV blocks within the caches of a group: all layers and pairs in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.kernels.api import KvCache

__all__ = ["BlockCopier"]

_BLOCK = 1024


@triton.jit
def _copy_kernel(
    bases: tl.tensor,  # [tensors] int64: addresses
    pairs: tl.tensor,  # [n, 2] int32: source and target block
    words: tl.tensor,  # 32-bit words of a block
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    pair = pairs + tl.program_id(0) * 2
    base = tl.load(bases + tl.program_id(1)).to(tl.pointer_type(tl.int32))
    base = tl.multiple_of(base, 16)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(pair).to(tl.int64) * words
    target = tl.load(pair + 1).to(tl.int64) * words
    value = tl.load(base + source + at, mask=at < words)
    tl.store(base + target + at, value, mask=at < words)


class BlockCopier:
    """Copies blocks of the caches it was made for. It holds their addresses, so they must outlive it."""

    def __init__(self, caches: Sequence[KvCache]) -> None:
        """`caches` are those of a group's layers: of one shape and dtype, each block contiguous, on one device."""
        self._caches = tuple(caches)
        tensors = [tensor for cache in caches for tensor in (cache.k, cache.v)]
        first = tensors[0]
        self._words = first[0].numel() * first.element_size() // 4
        self._bases = torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=first.device)

    def copy(self, pairs: Tensor) -> None:  # [n, 2] int32, device: source and target
        """Copy blocks. No target may be a source or a target of another pair: the copies run side by side."""
        if len(pairs):
            grid = (len(pairs), len(self._bases), triton.cdiv(self._words, _BLOCK))
            _copy_kernel[grid](self._bases, pairs, self._words, BLOCK=_BLOCK, **launch_options(pairs))
