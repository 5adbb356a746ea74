"""What encoders share: no logits, no caches, and names that begin with the family's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from octavo.models.base import Model

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.wire.worker import KvSpec

__all__ = ["Encoder"]


class Encoder(Model):
    """Gives hidden states of all tokens. Its steps hold rows whole: see ForwardBatch.counts."""

    #: What checkpoints with a head put before the names of the model itself.
    prefix: ClassVar[str]

    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> never
        raise TypeError(f"{type(self).__name__} is an encoder: it has no logits")

    def kv_specs(self) -> tuple[KvSpec, ...]:
        return ()

    def kv_heads(self, layer: int) -> int:
        return 0

    def canonical(self, name: str) -> str:
        """Return the name of a checkpoint's tensor without prefixes, and with today's names of a norm's weights."""
        name = re.sub(rf"^(?:(?:_orig_mod|module)\.)?(?:{self.prefix}\.)?", "", name)
        return re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
