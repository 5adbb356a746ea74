"""Weights over gloo, through the memory of CPUs."""

from __future__ import annotations

import datetime
import socket
from typing import Any

from torch._C._distributed_c10d import ProcessGroupGloo

from octavo.workers.weight_transfer.broadcast import BroadcastBackend, meeting_store

__all__ = ["GlooBackend", "gloo_group"]


class GlooBackend(BroadcastBackend):
    """See BroadcastBackend."""

    def meet(self, address: str, port: int, rank: int, world_size: int, timeout_s: int) -> Any:
        """See BroadcastBackend."""
        return gloo_group(address, port, rank, world_size, timeout_s, server=False)

    def receives_on(self, device: str) -> str:
        """See BroadcastBackend."""
        return "cpu"


def gloo_group(address: str, port: int, rank: int, world_size: int, timeout_s: int, *, server: bool) -> Any:
    """Return a group of its own, apart from the default one. `server`: host the store, which is what rank 0 does.

    Raises RuntimeError or ValueError when the others are not met in time.
    """
    store = meeting_store(address, port, world_size, timeout_s, server=server)
    kind = ProcessGroupGloo
    options = kind._Options()  # type: ignore[attr-defined]  # torch does not describe it
    # The interface by which the store is reached; a host's name may stand for another one.
    options._devices = [kind.create_device(hostname=_own_address(address, port))]
    options._timeout = datetime.timedelta(seconds=timeout_s)
    return kind(store, rank, world_size, options)


def _own_address(address: str, port: int) -> str:
    """Return this host's address on the way to another one; nothing is sent."""
    family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
