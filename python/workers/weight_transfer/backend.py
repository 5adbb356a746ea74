"""What a back end is, and the list of those that there are. Others come as entry points of installed packages."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["BACKENDS", "GROUP", "Place", "WeightBackend", "connect"]

#: Name -> "module:Class", which is called with the init_info of a trainer and the worker's place.
BACKENDS: Mapping[str, str] = {
    "shm": "octavo.workers.weight_transfer.shm:SharedMemoryBackend",
    "gloo": "octavo.workers.weight_transfer.gloo:GlooBackend",
    "ipc": "octavo.workers.weight_transfer.cuda_ipc:CudaIpcBackend",
    "nccl": "octavo.workers.weight_transfer.nccl:NcclBackend",
}
#: Group of entry points whose names join the list; an entry loads to such a class.
GROUP = "octavo.weight_transfer"
_DEFAULT = "shm"


@dataclass(frozen=True, slots=True)
class Place:
    """Which worker asks."""

    rank: int
    world_size: int
    device: str = "cpu"


class WeightBackend(Protocol):
    """A connection to a trainer. The constructor makes it, and raises ControlError if it cannot."""

    def receive(self, info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        """Return what yields the tensors, whole, in order, each valid until the answer to the trainer.

        They are on the CPU or on the worker's device.

        The call itself raises ControlError with code "invalid" for an `info` that it cannot work with; what the
        iterator raises ends the weight update.
        """
        ...

    def alive(self) -> bool:
        """Whether the trainer is still there as far as one can tell: else a trainer that says init is met anew."""
        ...

    def close(self) -> None:
        """End the connection. Idempotent."""
        ...


def connect(info: Mapping[str, Any], place: Place) -> WeightBackend:
    """Return the connection that `init_info` describes. Raises ControlError."""
    name = info.get("backend", _DEFAULT)
    plugins = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in BACKENDS:
        module, _, attribute = BACKENDS[name].partition(":")
        make = getattr(importlib.import_module(module), attribute)
    elif name in plugins:
        make = plugins[name].load()
    else:
        known = ", ".join([*BACKENDS, *plugins])
        raise ControlError(f"'init_info.backend' must be one of {known}; got {name!r}", "invalid", "init_info.backend")
    return cast("Callable[[Mapping[str, Any], Place], WeightBackend]", make)(info, place)
