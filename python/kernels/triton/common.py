# mypy: disable-error-code="import-untyped, untyped-decorator"
"""What all kernels share: rounding, dependent launch, launch options."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["INTERPRETED", "begin", "dot", "launch_options", "num_processors", "power_of_two", "rounded"]

INTERPRETED: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def rounded(x: tl.tensor, dtype: tl.constexpr) -> tl.tensor:
    """Return x, float32, in `dtype`, rounded to nearest even."""
    if dtype == tl.float32:
        return x
    if INTERPRETED:  # the interpreter truncates: round the bits first
        bits = x.to(tl.uint32, bitcast=True)
        even = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = tl.where(x == x, even, bits).to(tl.float32, bitcast=True)
    return x.to(dtype)


@triton.jit
def dot(a: tl.tensor, b: tl.tensor, acc: tl.tensor) -> tl.tensor:  # [M, K], [K, N], [M, N] float32 -> [M, N] float32
    """Return acc + a @ b, accumulated in float32; float32 operands keep all their digits (no TF32)."""
    if INTERPRETED:  # the interpreter multiplies bfloat16 as if it were integers
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.jit
def begin(DEPENDENT: tl.constexpr) -> None:
    """Let the next kernel start its prologue, then wait for what earlier kernels wrote (dependent launch)."""
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()


@cache
def _dependent_launch(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def launch_options(like: Tensor) -> dict[str, Any]:
    """Return the keyword arguments that every launch of a kernel with a DEPENDENT parameter takes.

    All such kernels wait for their predecessors before they read or write what those touch, so that they may be
    launched early; kernels without the option (cuBLAS) wait for the whole of their predecessor as ever.
    """
    if _dependent_launch(like.device):
        return {"DEPENDENT": True, "launch_pdl": True}
    return {"DEPENDENT": False}


@cache
def num_processors(device: torch.device) -> int:
    """Return the multiprocessors of a device; for the CPU, on which the interpreter runs, a small stand-in."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()
