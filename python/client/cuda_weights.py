"""Weights that stay on a GPU, for a server on the same host whose workers use that GPU too."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.client.shared_weights import described

__all__ = ["cuda_weights", "ipc_handle"]

#: Of the arguments by which torch opens a shared tensor: their places, and what update_info calls them.
_PLACES = {
    "memory": 7,
    "storage_bytes": 8,
    "storage_offset": 9,
    "tensor_offset": 3,
    "counter": 11,
    "counter_offset": 12,
    "event": 13,
    "event_sync": 14,
}


@contextlib.contextmanager
def cuda_weights(weights: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Lend torch tensors on GPUs; yield the update_info that names them, for the back end `ipc`.

    Do not write to them before the end of the block: `update_weights` returns when the server has copied them. Raises
    ValueError for a tensor that is on no GPU.
    """
    from torch.multiprocessing.reductions import reduce_tensor

    lent, handles = [], []
    for name, tensor in weights.items():
        if not tensor.is_cuda:
            raise ValueError(f"{name!r} is on {tensor.device}, not on a GPU; use shared_weights")
        kept = tensor.detach().contiguous()
        lent.append(kept)
        _, arguments = reduce_tensor(kept)  # type: ignore[no-untyped-call]
        handles.append({_uuid(kept): ipc_handle(arguments)})
    yield {**described(weights), "ipc_handles": handles}
    lent.clear()


def ipc_handle(arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the handle of a tensor as JSON, from the arguments of torch's `rebuild_cuda_tensor`."""
    picked = {name: arguments[place] for name, place in _PLACES.items()}
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in picked.items()
    }


def _uuid(tensor: Any) -> str:
    import torch

    return str(torch.cuda.get_device_properties(tensor.device).uuid)
