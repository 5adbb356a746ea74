"""Weights over NCCL: from the trainer's GPU straight into those of the workers, each of which has one of its own."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from octavo.errors import ControlError
from octavo.workers.weight_transfer.broadcast import BroadcastBackend, meeting_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octavo.workers.weight_transfer.backend import Place

__all__ = ["NcclBackend", "nccl_group"]


class NcclBackend(BroadcastBackend):
    """See BroadcastBackend. Raises ControlError where the worker has no GPU."""

    def __init__(self, info: Mapping[str, Any], place: Place) -> None:
        if not place.device.startswith("cuda") or not distributed.is_nccl_available():
            raise ControlError(
                f"'init_info.backend': nccl moves weights between GPUs, and this worker runs on {place.device}; use "
                "gloo, or shm on one host",
                "invalid",
                "init_info.backend",
            )
        super().__init__(info, place)

    def meet(self, address: str, port: int, rank: int, world_size: int, timeout_s: int) -> Any:
        """See BroadcastBackend."""
        return nccl_group(address, port, rank, world_size, timeout_s, server=False)

    def receives_on(self, device: str) -> str:
        """See BroadcastBackend."""
        return device


def nccl_group(address: str, port: int, rank: int, world_size: int, timeout_s: int, *, server: bool) -> Any:
    """Return a group of its own over the current device of each process, as `gloo_group`.

    NCCL does not let two ranks share a GPU. It joins at the first collective, so that a rank that does not come ends
    the process that waits for it, after `timeout_s`.
    """
    store = meeting_store(address, port, world_size, timeout_s, server=server)
    kind = distributed.ProcessGroupNCCL
    options = kind.Options()
    options._timeout = datetime.timedelta(seconds=timeout_s)
    group = kind(store, rank, world_size, options)
    # Here, where a refusal is an answer, and not in the middle of an update.
    here = torch.zeros(1, device=torch.device("cuda", torch.cuda.current_device()))
    group.allreduce([here]).wait()  # type: ignore[attr-defined]  # torch does not describe it
    torch.cuda.synchronize()
    return group
