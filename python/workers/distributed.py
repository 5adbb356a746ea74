"""Join the ranks of a tensor-parallel group, or those over which experts are spread."""

from __future__ import annotations

import datetime
import os
import socket
from typing import TYPE_CHECKING

import torch
from torch import distributed

from octavo.errors import PeerError
from octavo.layers.exchange import RankExchange
from octavo.layers.parallel import RankGroup, SingleGroup
from octavo.workers.peer_group import join_peers

if TYPE_CHECKING:
    from octavo.layers.exchange import Exchange
    from octavo.layers.parallel import Group
    from octavo.wire.worker import Init

__all__ = ["join", "join_experts", "leave"]

_LOOPBACK = ("lo", "lo0")
#: A rank that waits longer than this for the others gives up; the core sees a hang or a death much earlier.
_TIMEOUT = datetime.timedelta(hours=1)


def join(init: Init) -> Group:
    """Meet the other ranks at `init.rendezvous` and return the group; alone, return at once."""
    if init.world_size == 1:
        return SingleGroup()
    _meet(init.device, init.rendezvous, init.rank, init.world_size)
    return join_peers() if init.device.startswith("cuda") else RankGroup()


def join_experts(init: Init) -> Exchange | None:
    """Meet the ranks over which experts are spread; None where they are not. Only without tensor parallel ranks.

    Raises PeerError if they do not come.
    """
    if init.expert_ranks == 1:
        return None
    try:
        _meet(init.device, init.expert_rendezvous, init.expert_rank, init.expert_ranks)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise PeerError(f"the ranks that hold the other experts were not met: {reason}") from error
    return RankExchange(init.expert_rank, init.expert_ranks, init.device)


def _meet(device: str, rendezvous: str, rank: int, ranks: int) -> None:
    """Make the default group of torch.distributed."""
    if rendezvous.startswith("file://"):
        # Ranks that share a file share a host: neither library may listen on, or look up, any other address.
        known = [name for _, name in socket.if_nameindex()]
        loopback = next((name for name in _LOOPBACK if name in known), None)
        if loopback is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    gpu = device.startswith("cuda")
    distributed.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=rendezvous,
        rank=rank,
        world_size=ranks,
        timeout=_TIMEOUT,
        device_id=torch.device(device) if gpu else None,
    )


def leave() -> None:
    """Leave the group, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
