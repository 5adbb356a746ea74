"""Weights over gloo: trainer and workers form a group of processes, in which the trainer, rank 0, broadcasts."""

from __future__ import annotations

import datetime
import socket
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore

from octavo.errors import ControlError
from octavo.workers.weight_transfer.description import whole, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.workers.weight_transfer.backend import Place
    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["GlooBackend", "gloo_group"]

_TIMEOUT_S = 60


class GlooBackend:
    """`init_info`: `master_address`, `master_port` of a TCPStore that the trainer hosts, `world_size` of the group.

    Workers take the ranks from `rank_offset` (1) on. Tensors are broadcast one by one, in the order of `update_info`.
    `timeout_s` (60) bounds the meeting and each tensor. The address must be one that only trainers and workers reach:
    gloo asks nobody for a key.
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
        try:
            self._group = gloo_group(address, port, offset + place.rank, world_size, timeout, server=False)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ControlError(f"the trainer at {address}:{port} was not met: {reason}", "failed") from None

    def receive(self, info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        """See WeightBackend."""
        return self._broadcasts(tensors)

    def close(self) -> None:
        """Leave the group."""
        self._group = None

    def _broadcasts(self, tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        options = BroadcastOptions()
        options.rootRank = 0
        for tensor in tensors:
            whole_tensor = torch.empty(tensor.shape, dtype=tensor.dtype)
            try:
                self._group.broadcast([whole_tensor], options).wait()
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise ControlError(f"{tensor.name!r} did not come from the trainer: {reason}", "failed") from None
            yield whole_tensor


def gloo_group(address: str, port: int, rank: int, world_size: int, timeout_s: int, *, server: bool) -> Any:
    """Return a group of its own, apart from the default one. `server`: host the store, which is what rank 0 does.

    Raises RuntimeError or ValueError when the others are not met in time.
    """
    timeout = datetime.timedelta(seconds=timeout_s)
    store = TCPStore(address, port, world_size, is_master=server, timeout=timeout, wait_for_workers=False)
    kind = ProcessGroupGloo
    options = kind._Options()  # type: ignore[attr-defined]  # torch does not describe it
    # The interface by which the store is reached; a host's name may stand for another one.
    options._devices = [kind.create_device(hostname=_own_address(address, port))]
    options._timeout = timeout
    return kind(PrefixStore("octavo-weights", store), rank, world_size, options)


def _own_address(address: str, port: int) -> str:
    """Return this host's address on the way to another one; nothing is sent."""
    family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
