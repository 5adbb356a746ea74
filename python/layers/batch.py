"""What a forward pass is given besides token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache, PreparedAttention

__all__ = ["ForwardBatch", "Progress"]


class Progress:
    """Where the device thread is, written by it and read by the heartbeat thread. Plain attributes: no lock needed."""

    def __init__(self) -> None:
        self.phase = "loading"
        self.step = 0
        self.layer = 0


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step, as a model sees it."""

    positions: Tensor  # [T] int64, device
    attention: tuple[PreparedAttention, ...]  # by layer; layers of one KV group share an object
    caches: tuple[KvCache, ...]  # by layer
    progress: Progress
