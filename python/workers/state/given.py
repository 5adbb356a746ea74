"""Prompts that are vectors instead of token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.errors import ProtocolError
from octavo.layers.batch import Given
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.wire.worker import NewRow

__all__ = ["GivenPrompts"]

Ints = np.ndarray[Any, np.dtype[Any]]

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class GivenPrompts:
    """Owns the vectors of the slots whose prompts are vectors, until all of a prompt is computed."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._kept: dict[int, Tensor] = {}  # by slot: [prompt, hidden] any float dtype, device

    def release(self, slots: list[int]) -> None:
        """Forget slots that were given back."""
        for slot in slots:
            self._kept.pop(slot, None)

    def take(self, row: NewRow) -> None:
        """Keep what a request brings. Raises ProtocolError if it is not one vector for each token of the prompt."""
        if row.embeds is None:
            return
        dtype = _DTYPES.get(row.embeds.dtype)
        values, width = row.embeds.values, row.embeds.width
        if dtype is None or len(values) != row.prompt_len * width * dtype.itemsize:
            raise ProtocolError(
                f"slot {row.slot}: {len(values)} bytes are not {row.prompt_len} vectors of {width} {row.embeds.dtype}"
            )
        packed = upload(np.frombuffer(values, dtype=np.uint8).copy(), self._device)
        self._kept[row.slot] = packed.view(dtype).view(row.prompt_len, width)

    def of(self, slots: Ints, starts: Ints, counts: Ints) -> Given | None:  # [R] int64, three times
        """Return the vectors of a step that computes `counts` tokens of `slots` from `starts` on; None: it has none."""
        if not self._kept:
            return None
        parts: list[Tensor] = []
        places: list[Ints] = []
        begin = 0
        for slot, start, count in zip(slots.tolist(), starts.tolist(), counts.tolist(), strict=True):
            kept = self._kept.get(slot)
            if kept is not None and start >= len(kept):
                del self._kept[slot]  # the prompt is computed: what follows has ids
            elif kept is not None:
                parts.append(kept[start : start + count])
                places.append(np.arange(begin, begin + len(parts[-1])))
            begin += count
        if not parts:
            return None
        return Given(upload(np.concatenate(places), self._device), torch.cat(parts))
