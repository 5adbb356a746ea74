"""Weights by broadcast: trainer and workers form a group of processes, in which the trainer, rank 0, sends each tensor.

What is common to libraries of collectives; gloo.py and nccl.py say how each makes its group.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import BroadcastOptions, PrefixStore, TCPStore

from octavo.errors import ControlError
from octavo.workers.weight_transfer.description import whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.workers.weight_transfer.backend import Place
    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["BroadcastBackend", "meeting_store"]

_TIMEOUT_S = 60


class BroadcastBackend(ABC):
    """`init_info`: `master_address`, `master_port` of a TCPStore that the trainer hosts, `world_size` of the group.

    Workers take the ranks from `rank_offset` (1) on. Tensors are broadcast one by one, in the order of `update_info`.
    `timeout_s` (60) bounds the meeting and each tensor. The address must be one that only trainers and workers reach:
    the group asks nobody for a key.
    """

    def __init__(self, info: Mapping[str, Any], place: Place) -> None:
        """Meet the trainer. Raises ControlError if it does not come in time."""
        address = word(info, "init_info", "master_address")
        port = whole(info, "init_info", "master_port", 1, 65535)
        world_size = whole(info, "init_info", "world_size", 2, 65536)
        offset = whole(info, "init_info", "rank_offset", 1, 65535, 1)
        timeout = whole(info, "init_info", "timeout_s", 1, 3600, _TIMEOUT_S)
        if offset + place.world_size > world_size:
            raise ControlError(
                f"'init_info.world_size' {world_size} holds no {place.world_size} workers from rank {offset} on",
                "invalid",
                "init_info.world_size",
            )
        self._device = place.device
        self._broken = False
        try:
            self._group = self.meet(address, port, offset + place.rank, world_size, timeout)
            self._store: PrefixStore | None = meeting_store(address, port, world_size, timeout, server=False)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ControlError(f"the trainer at {address}:{port} was not met: {reason}", "failed") from None

    @abstractmethod
    def meet(self, address: str, port: int, rank: int, world_size: int, timeout_s: int) -> Any:
        """Return a torch process group, apart from the default one. Raises RuntimeError or ValueError if it cannot."""

    @abstractmethod
    def receives_on(self, device: str) -> str:
        """Return the device whose memory a broadcast writes to, in a worker of `device`."""

    def receive(self, info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        """See WeightBackend."""
        return self._broadcasts(tensors)

    def alive(self) -> bool:
        """Whether no broadcast has failed and the trainer still hosts its store."""
        if self._broken or self._store is None:
            return False
        try:
            self._store.check(["octavo"])  # any answer
        except RuntimeError:
            return False
        return True

    def close(self) -> None:
        """Leave the group."""
        self._group = self._store = None

    def _broadcasts(self, tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        options = BroadcastOptions()
        options.rootRank = 0
        device = self.receives_on(self._device)
        for tensor in tensors:
            received = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
            try:
                self._group.broadcast([received], options).wait()
            except RuntimeError as error:
                self._broken = True
                reason = str(error).partition("\n")[0]
                raise ControlError(f"{tensor.name!r} did not come from the trainer: {reason}", "failed") from None
            yield received


def meeting_store(address: str, port: int, world_size: int, timeout_s: int, *, server: bool) -> PrefixStore:
    """Return the store where the ranks find each other. `server`: host it, which is what rank 0 does.

    Raises RuntimeError or ValueError if it is not reached in time.
    """
    timeout = datetime.timedelta(seconds=timeout_s)
    store = TCPStore(address, port, world_size, is_master=server, timeout=timeout, wait_for_workers=False)
    return PrefixStore("octavo-weights", store)
