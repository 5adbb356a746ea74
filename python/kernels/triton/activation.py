# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Elementwise functions between matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, rounded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonActivation"]

_BLOCK = 1024


@triton.jit
def _silu_mul_kernel(
    gate_up: tl.tensor,  # [T, 2 * size]
    out: tl.tensor,  # [T, size]
    stride: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    dtype: tl.constexpr = gate_up.dtype.element_ty
    gate = tl.load(gate_up + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + size + at, mask=inside, other=0.0).to(tl.float32)
    silu = rounded(gate / (1.0 + tl.exp(-gate)), dtype).to(tl.float32)
    tl.store(out + row * size + at, rounded(silu * up, dtype), mask=inside)


class TritonActivation:
    """ActivationOps in Triton."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        count, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((count, size), dtype=gate_up.dtype, device=gate_up.device)
        if count:
            grid = (count, triton.cdiv(size, _BLOCK))
            _silu_mul_kernel[grid](
                gate_up, out, gate_up.stride(0), size, BLOCK=_BLOCK, num_warps=4, **launch_options(gate_up)
            )
        return out
