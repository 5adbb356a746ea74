"""What a worker's runner asks of a model."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, cast

from octavo.layers.base import Layer
from octavo.models.registry import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.layers.base import Build, WeightPart
    from octavo.layers.batch import ForwardBatch
    from octavo.wire.worker import KvSpec

__all__ = ["Model", "build_model"]


class Model(Layer, ABC):
    """A model on one rank. Constructed from its config and a Build; its weights are loaded afterwards."""

    #: Name in a checkpoint -> path of the weight here. One "*" stands for a layer's number, a last ".*" for a suffix.
    names: ClassVar[Mapping[str, str]]
    #: Patterns of checkpoint tensors that are not read: what older checkpoints stored besides weights.
    ignored: ClassVar[tuple[str, ...]] = ()

    vocab_size: int  # width of the logits

    @abstractmethod
    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [T, hidden] dtype
        """Return the last hidden states; write the tokens' keys and values into the cache."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab_size] dtype
        """Return the logits of some rows of `forward`'s result, the same on every rank."""

    @abstractmethod
    def kv_specs(self) -> tuple[KvSpec, ...]:
        """Return what each layer keeps on the rank that keeps most: the same on every rank."""

    @abstractmethod
    def kv_heads(self, layer: int) -> int:
        """Return the key-value heads that `layer` keeps on this rank."""

    def checkpoint(self) -> dict[str, WeightPart]:
        """Return every weight by its name in a checkpoint."""
        found = {}
        for path, part in self.weights().items():
            found[self._checkpoint_name(path)] = part
        return found

    def is_ignored(self, name: str) -> bool:
        """Return whether the checkpoint tensor `name` is left out on purpose."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)

    def _checkpoint_name(self, path: str) -> str:
        for theirs, ours in self.names.items():
            match = re.fullmatch(re.escape(ours).replace(r"\*", "([^.]+)"), path)
            if match:
                filled = theirs
                for group in match.groups():
                    filled = filled.replace("*", group, 1)
                return filled
        raise LookupError(f"{type(self).__name__}.names has no entry for the weight {path!r}")


def build_model(architecture: str, config: dict[str, Any], build: Build) -> Model:
    """Return the model for a config.json, its weights not yet loaded.

    Raises ModelError for an architecture that is not known and for a config that it cannot be built from.
    """
    entry = find(architecture)
    module, _, name = entry.model.partition(":")
    model_class = getattr(importlib.import_module(module), name)
    return cast("Model", model_class(entry.config.parse(config), build))
