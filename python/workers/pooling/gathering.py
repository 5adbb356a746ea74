"""What is kept of a request's hidden states while its prompt is computed, which may take several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ALL", "CLS", "LAST", "MEAN", "Gathering"]

CLS, LAST, MEAN, ALL = "CLS", "LAST", "MEAN", "ALL"


class Gathering:
    """Belongs to one request. Parts come in order; the same vector comes out however the prompt was cut.

    `kind`: CLS, LAST: the first, the last token's hidden state; MEAN: their mean, in float32; ALL: each.
    """

    __slots__ = ("_count", "_kind", "_parts")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._parts: list[Tensor] = []  # ALL: [n, hidden] each; else at most one [1, hidden]; float32
        self._count = 0

    def add(self, hidden: Tensor, start: int) -> None:  # [n, hidden] dtype
        """Take the hidden states of the tokens from `start` on; of LAST, the last one of them will do."""
        if start == 0:
            self._parts.clear()
            self._count = 0
        self._count += hidden.shape[0]
        if self._kind == ALL:
            self._parts.append(hidden.float())
        elif self._kind == LAST:
            self._parts[:] = [hidden[-1:].float()]
        elif self._kind == MEAN:
            total = hidden.sum(0, keepdim=True, dtype=torch.float32)
            self._parts[:] = [total + part for part in self._parts] or [total]
        elif start == 0:
            self._parts.append(hidden[:1].float())

    def take(self) -> Tensor:  # [vectors, hidden] float32
        """Return what came of all parts, once."""
        parts, self._parts = self._parts, []
        if self._kind == MEAN:
            return parts[0] / self._count
        return parts[0] if len(parts) == 1 else torch.cat(parts)
