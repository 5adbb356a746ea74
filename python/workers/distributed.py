"""Join the ranks of a tensor-parallel group."""

from __future__ import annotations

import datetime
import os
import socket
from typing import TYPE_CHECKING

import torch
from torch import distributed

from octavo.layers.parallel import RankGroup, SingleGroup
from octavo.workers.peer_group import join_peers

if TYPE_CHECKING:
    from octavo.layers.parallel import Group
    from octavo.wire.worker import Init

__all__ = ["join", "leave"]

_LOOPBACK = ("lo", "lo0")
#: A rank that waits longer than this for the others gives up; the core sees a hang or a death much earlier.
_TIMEOUT = datetime.timedelta(hours=1)


def join(init: Init) -> Group:
    """Meet the other ranks at `init.rendezvous` and return the group; alone, return at once."""
    if init.world_size == 1:
        return SingleGroup()
    if init.rendezvous.startswith("file://"):
        # Ranks that share a file share a host: neither library may listen on, or look up, any other address.
        known = [name for _, name in socket.if_nameindex()]
        loopback = next((name for name in _LOOPBACK if name in known), None)
        if loopback is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    gpu = init.device.startswith("cuda")
    distributed.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=init.rendezvous,
        rank=init.rank,
        world_size=init.world_size,
        timeout=_TIMEOUT,
        device_id=torch.device(init.device) if gpu else None,
    )
    return join_peers() if gpu else RankGroup()


def leave() -> None:
    """Leave the group, if there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
