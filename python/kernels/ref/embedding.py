"""Rows of an embedding table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RefEmbedding"]


class RefEmbedding:
    """EmbeddingOps in torch."""

    def lookup(self, ids: Tensor, table: Tensor, first: int) -> Tensor:  # [T] int32, [rows, H] dtype -> [T, H] dtype
        local = ids - first
        inside = (local >= 0) & (local < table.shape[0])
        rows = F.embedding(local.where(inside, local.new_zeros(())), table)
        return rows.where(inside.unsqueeze(-1), rows.new_zeros(()))
