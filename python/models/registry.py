"""The architectures that octavo can run, by the name that a config gives. Free of torch: the supervisor reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from octavo.errors import ModelError
from octavo.models.llama_config import LlamaConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ARCHITECTURES", "Architecture", "ModelConfig", "find"]


class ModelConfig(Protocol):
    """What every architecture's config says. Each has `parse(config) -> Self` besides."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...


class _ConfigClass(Protocol):
    def parse(self, config: dict[str, Any]) -> ModelConfig: ...


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model family. The model is named, not imported: its module needs torch."""

    name: str
    model: str  # "module:class" of a Model
    config: _ConfigClass


#: `architectures[0]` of config.json -> how to run it.
ARCHITECTURES: Mapping[str, Architecture] = {
    entry.name: entry
    for entry in [
        Architecture("LlamaForCausalLM", "octavo.models.llama:Llama", LlamaConfig),
    ]
}


def find(name: str) -> Architecture:
    """Return the architecture called `name`.

    Raises ModelError, which lists the known names, for any other.
    """
    found = ARCHITECTURES.get(name)
    if found is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelError(f"the architecture {name!r} is not supported; known: {known}. Choose a model of one of these.")
    return found
