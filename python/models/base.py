"""What a worker's runner asks of a model."""

from __future__ import annotations

import importlib
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, cast

from octavo.layers.base import Layer
from octavo.layers.classifier import HeadSpec
from octavo.layers.sources import stacked
from octavo.models.registry import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from octavo.layers.base import Build, WeightPart
    from octavo.layers.batch import ForwardBatch
    from octavo.wire.worker import KvSpec

__all__ = ["Model", "build_model"]

#: What wrappers put before a name: training frameworks, and checkpoints of the base model alone or of one with images.
_WRAPPERS = (
    (r"(?:_orig_mod|module)\.", ""),
    (r"model\.language_model\.", "model."),
    (r"language_model\.model\.", "model."),
    (r"language_model\.lm_head\.", "lm_head."),
    (r"(embed_tokens|layers|norm)\.", r"model.\1."),
)


class Model(Layer, ABC):
    """A model on one rank. Constructed from its config and a Build; its weights are loaded afterwards."""

    #: Name in a checkpoint -> path of the weight here. A "*" stands for a number (of a layer, an expert), a last ".*"
    #: for a suffix. "{a,b}" in a path: the rows of the tensor are those of the paths with a and with b.
    names: ClassVar[Mapping[str, str]]
    #: Patterns of checkpoint tensors that are not read: what older checkpoints stored besides weights.
    ignored: ClassVar[tuple[str, ...]] = ()
    #: Likewise, where the model pools: heads of other tasks.
    headless: ClassVar[tuple[str, ...]] = ()

    vocab_size: int  # width of the logits
    hidden_size: int = 0  # numbers of a vector that may stand for a token (`ForwardBatch.given`); 0: none may

    @abstractmethod
    def forward(self, ids: Tensor, batch: ForwardBatch) -> Tensor:  # [T] int32 -> [W, hidden] dtype
        """Return the last hidden states of the tokens that are wanted; write keys and values of all to the cache."""

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:  # [R, hidden] dtype -> [R, vocab_size] dtype
        """Return the logits of some rows of `forward`'s result, the same on every rank."""

    @abstractmethod
    def kv_specs(self) -> tuple[KvSpec, ...]:
        """Return what each layer keeps on the rank that keeps most: the same on every rank."""

    @abstractmethod
    def kv_heads(self, layer: int) -> int:
        """Return the key-value heads that `layer` keeps on this rank."""

    def head_spec(self, task: str) -> HeadSpec:
        """Return what stands behind the hidden states in a classifier. `task`: "classify" or "token_classify"."""
        return HeadSpec("score", bias=False)

    def checkpoint(self) -> dict[str, WeightPart]:
        """Return every tensor that a checkpoint should have, by name."""
        table = [entry for name, path in self.names.items() for entry in _entries(name, path)]
        found: dict[str, list[tuple[int, WeightPart]]] = {}
        for path, part in self.weights().items():
            name, place = self._place(path, table)
            found.setdefault(name, []).append((place, part))
        ordered = {name: sorted(parts, key=lambda item: item[0]) for name, parts in found.items()}
        return {name: stacked([part for _, part in parts]) for name, parts in ordered.items()}

    def canonical(self, name: str) -> str:
        """Return the name of a checkpoint's tensor without what wrappers put before it."""
        for pattern, ours in _WRAPPERS:
            name = re.sub("^" + pattern, ours, name)
        return name

    def is_ignored(self, name: str) -> bool:
        """Return whether the checkpoint tensor `name` is left out on purpose."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)

    def _place(self, path: str, table: list[tuple[re.Pattern[str], str, int]]) -> tuple[str, int]:
        """Return the checkpoint's name for a weight here, and its place among those that share the tensor."""
        for pattern, name, place in table:
            match = pattern.fullmatch(path)
            if match:
                for group in match.groups():
                    name = name.replace("*", group, 1)
                return name, place
        raise LookupError(f"{type(self).__name__}.names has no entry for the weight {path!r}")


def _entries(name: str, path: str) -> list[tuple[re.Pattern[str], str, int]]:
    """Return (pattern of paths, checkpoint name, place in the tensor) for one line of a table of names."""
    before, brace, rest = path.partition("{")
    inside, _, after = rest.partition("}")
    paths = [before + choice + after for choice in inside.split(",")] if brace else [path]
    return [(re.compile(re.escape(one).replace(r"\*", "([^.]+)")), name, place) for place, one in enumerate(paths)]


def build_model(architecture: str, config: dict[str, Any], build: Build) -> Model:
    """Return the model for a config.json, its weights not yet loaded.

    Raises ModelError for an architecture that is not known and for a config that it cannot be built from.
    """
    entry = find(architecture)
    module, _, name = entry.model.partition(":")
    model_class = getattr(importlib.import_module(f"octavo.models.{module}"), name)
    return cast("Model", model_class(entry.parse(config), build))
