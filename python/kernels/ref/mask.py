"""Masks of tokens in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefMask"]


class RefMask:
    """MaskOps in torch, for any device."""

    def apply_token_mask(
        self, logits: Tensor, rows: Tensor, masks: Tensor
    ) -> None:  # [R, V] dtype, [M] int64, [M, W] int32
        shifts = torch.arange(32, dtype=torch.int32, device=masks.device)
        bits = (masks.unsqueeze(2) >> shifts) & 1  # [M, W, 32]
        allowed = bits.flatten(1)[:, : logits.shape[1]].to(torch.bool)
        logits[rows] = logits[rows].masked_fill(~allowed, float("-inf"))
