# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Elementwise functions between matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from octavo.kernels.triton.common import begin, launch_options, rounded

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonActivation"]

_BLOCK = 1024


@triton.jit
def _gated_kernel(
    gate_up: tl.tensor,  # [T, 2 * size]
    out: tl.tensor,  # [T, size]
    stride: tl.tensor,
    size: tl.tensor,
    BLOCK: tl.constexpr,
    GELU: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    dtype: tl.constexpr = gate_up.dtype.element_ty
    gate = tl.load(gate_up + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * stride + size + at, mask=inside, other=0.0).to(tl.float32)
    if GELU:
        # (1 + tanh(y)) / 2 is the logistic function of 2 y, which cancels nothing where y is negative.
        twice = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
        acted = gate / (1.0 + tl.exp(-twice))
    else:
        acted = gate / (1.0 + tl.exp(-gate))
    tl.store(out + row * size + at, rounded(rounded(acted, dtype).to(tl.float32) * up, dtype), mask=inside)


class TritonActivation:
    """ActivationOps in Triton."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        return _gated(gate_up, gelu=False)

    def gelu_mul(self, gate_up: Tensor) -> Tensor:
        return _gated(gate_up, gelu=True)

    def gelu(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")

    def gelu_erf(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def gelu_erf_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate) * up


def _gated(gate_up: Tensor, gelu: bool) -> Tensor:  # [T, 2I] dtype -> [T, I] dtype
    count, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((count, size), dtype=gate_up.dtype, device=gate_up.device)
    if count:
        grid = (count, triton.cdiv(size, _BLOCK))
        _gated_kernel[grid](
            gate_up, out, gate_up.stride(0), size, BLOCK=_BLOCK, GELU=gelu, num_warps=4, **launch_options(gate_up)
        )
    return out
