"""What a forward pass is given besides token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import KvCache, PreparedAttention

__all__ = ["Ending", "ForwardBatch", "Given", "Progress"]


class Progress:
    """Where the device thread is, written by it and read by the heartbeat thread. Plain attributes: no lock needed."""

    def __init__(self) -> None:
        self.phase = "loading"
        self.step = 0
        self.layer = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The tokens whose hidden states are asked for, one of a row; of others the last layer keeps keys and values."""

    tokens: Tensor  # [W] int64, device: which of the step's
    attention: PreparedAttention  # of these tokens alone; for layers of the last one's KV group


@dataclass(frozen=True, slots=True)
class Given:
    """Vectors that take the place of those of some tokens' ids."""

    tokens: Tensor  # [E] int64, device: which of the step's
    values: Tensor  # [E, hidden] any float dtype, device

    def into(self, x: Tensor, scale: float) -> Tensor:  # [T, hidden] dtype -> [T, hidden] dtype
        """Return the embeddings of a step with these vectors, times `scale`, in their places."""
        values = self.values.to(x.dtype)
        return x.index_copy(0, self.tokens, values if scale == 1.0 else values * scale)


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step, as a model sees it."""

    positions: Tensor  # [T] int64, device
    attention: tuple[PreparedAttention, ...]  # by layer; layers of one KV group share an object
    caches: tuple[KvCache, ...]  # by layer
    progress: Progress
    ending: Ending | None = None  # None: all tokens go through the whole layer; so it is in all layers but the last
    counts: tuple[int, ...] = ()  # tokens of each row, where rows stand whole in the step and nothing is cached
    given: Given | None = None  # None: all tokens are their ids
    segments: Tensor | None = None  # [T] int32, device: of a pair of texts, which one a token is of; None: the first

    def going_on(self, x: Tensor) -> Tensor:  # [T, ...] -> [W, ...]
        """Return the rows of the tokens that go on from this layer's queries."""
        return x if self.ending is None else x.index_select(0, self.ending.tokens)
