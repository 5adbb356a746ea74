"""Matrix products: cuBLAS, and kernels of our own for few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from octavo.kernels.triton.common import launch_options, num_processors
from octavo.kernels.triton.gemv import MAX_FEW, few_rows
from octavo.kernels.triton.skinny import MOST, SkinnyWorkspace, skinny, skinny_shape

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonLinear"]


#: The sum costs a product of so many rows nothing, and saves the norm behind it half of its passes over memory: 1.2% of
#: a step of 16,384 tokens. Recorded steps are smaller.
_SUM_ROWS = 1024


class TritonLinear:
    """LinearOps on plain weights."""

    def __init__(self) -> None:
        self._workspaces: dict[torch.device, SkinnyWorkspace] = {}

    def pack(self, weight: Tensor) -> Tensor:
        return weight.contiguous()

    def unpack(self, packed: Tensor) -> Tensor:
        return packed

    def apply(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.shape[0]
        if x.dtype == torch.bfloat16 and 1 <= rows <= MAX_FEW and x.dim() == 2 and x.stride(1) == 1:
            return few_rows(x, packed, bias)
        if rows <= MOST and x.dtype == torch.bfloat16 and x.dim() == 2 and x.stride(1) == 1:
            # With dependent launch, that is: on devices that it was measured on.
            shape = skinny_shape(rows, packed.shape[0], packed.shape[1], num_processors(x.device))
            if shape is not None and launch_options(x)["DEPENDENT"]:
                return skinny(x, packed, bias, shape, self._workspace(x.device))
        return F.linear(x, packed, bias)

    def _workspace(self, device: torch.device) -> SkinnyWorkspace:
        if device not in self._workspaces:
            self._workspaces[device] = SkinnyWorkspace(device)
        return self._workspaces[device]

    @property
    def sum_rows(self) -> int:
        return _SUM_ROWS

    def apply_onto(self, x: Tensor, packed: Tensor, onto: Tensor) -> Tensor:
        return onto.addmm_(x, packed.t())
