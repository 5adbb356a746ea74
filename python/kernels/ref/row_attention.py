"""Attention within whole rows, in torch, on any device."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from octavo.kernels.ref.rotary import rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["RefRowAttention"]


class RefRowAttention:
    """RowAttentionOps by torch's scaled_dot_product_attention; rows of one length are computed together."""

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return rotate(x, cos, sin)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, counts: Sequence[int], scale: float, reach: int = 0
    ) -> Tensor:  # [T, N, D] dtype, three times -> [T, N, D] dtype
        starts: dict[int, list[int]] = {}
        for count, start in zip(counts, accumulate(counts, initial=0), strict=False):
            starts.setdefault(count, []).append(start)
        if len(starts) == 1:
            count, rows = next(iter(starts.items()))
            return _attend(q, k, v, len(rows), count, scale, reach)
        out = torch.empty_like(q)
        for count, rows in starts.items():
            if len(rows) == 1:
                part = slice(rows[0], rows[0] + count)
                out[part] = _attend(q[part], k[part], v[part], 1, count, scale, reach)
                continue
            places = (torch.tensor(rows).unsqueeze(1) + torch.arange(count)).flatten().to(q.device)  # [R * count]
            some_q, some_k, some_v = (x.index_select(0, places) for x in (q, k, v))
            out.index_copy_(0, places, _attend(some_q, some_k, some_v, len(rows), count, scale, reach))
        return out


def _attend(
    q: Tensor, k: Tensor, v: Tensor, rows: int, count: int, scale: float, reach: int
) -> Tensor:  # [rows * count, N, D] dtype, three times -> [rows * count, N, D] dtype
    heads, dim = q.shape[1:]
    q, k, v = (x.reshape(rows, count, heads, dim).transpose(1, 2) for x in (q, k, v))
    mask = None
    if 0 < reach < count - 1:
        places = torch.arange(count, device=q.device)
        mask = (places.unsqueeze(0) - places.unsqueeze(1)).abs() <= reach  # [count, count]
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return attended.transpose(1, 2).reshape(rows * count, heads, dim)
