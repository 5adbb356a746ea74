"""Log probabilities: computed on the device, packed there into one array for each width, taken apart on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.wire.frontend import Logprobs
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import LogitsOps
    from octavo.workers.sampling.extras import SlotExtras

__all__ = ["Packed", "of_drawn", "of_prompt", "unpack"]

#: Rows of a prompt whose logits are in memory at once.
_ROWS = 128


@dataclass(frozen=True, slots=True)
class Packed:
    """Log probabilities of some tokens, on the device."""

    owners: tuple[int, ...]  # which row of the step each row here belongs to; one for all: the rows of a prompt
    values: Tensor  # [R, 2 W + 1] int32, as LogitsOps.logprobs gives them


def of_drawn(
    scores: Tensor, extras: list[SlotExtras], owners: list[int], drawn: Tensor, normalize: bool, ops: LogitsOps
) -> list[Packed]:  # [R, V] float32, R of each, [R] int64
    """Return the log probabilities of drawn tokens for the rows that want them; rows of one width go together."""
    groups: dict[int, list[int]] = {}
    packed = []
    for index, slot in enumerate(extras):
        if slot.logprob_ids is not None:
            row = slice(index, index + 1)
            values = ops.logprobs(scores[row], drawn[row], 0, slot.logprob_ids, normalize)
            packed.append(Packed((owners[index],), values))
        elif slot.params.logprobs is not None:
            groups.setdefault(_width(slot.params.logprobs, scores.shape[1]), []).append(index)
    for width, indices in groups.items():
        at = upload(np.array(indices, dtype=np.int64), str(scores.device))
        values = ops.logprobs(scores[at], drawn[at], width, None, normalize)
        packed.append(Packed(tuple(owners[index] for index in indices), values))
    return packed


def of_prompt(
    logits: Any, hidden: Tensor, following: Tensor, count: int, owner: int, normalize: bool, ops: LogitsOps
) -> Packed:  # [T, hidden] dtype -> [T, V] dtype; [T, hidden] dtype, [T] int64
    """Return the log probabilities of the tokens that follow those of `hidden` in a prompt; `count` is -1 for all."""
    parts = []
    for at in range(0, len(following), _ROWS):
        rows = logits(hidden[at : at + _ROWS]).to(torch.float32)
        width = _width(count, rows.shape[1])
        parts.append(ops.logprobs(rows, following[at : at + _ROWS], width, None, normalize))
    return Packed((owner,), torch.cat(parts))


def unpack(values: np.ndarray[Any, Any]) -> Logprobs:  # [R, 2 W + 1] int32
    """Return what travels."""
    width = values.shape[1] // 2
    return Logprobs(
        width=width,
        ids=values[:, :width].astype("<i4").tobytes(),
        values=values[:, width : 2 * width].astype("<i4").tobytes(),
        ranks=values[:, 2 * width].astype("<i4").tobytes(),
    )


def _width(count: int, vocab: int) -> int:
    return vocab if count < 0 else min(count, vocab)
