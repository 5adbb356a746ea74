"""Weights in the memory of a GPU that trainer and worker share: the trainer lends tensors, the worker copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor

from octavo.errors import ControlError
from octavo.workers.weight_transfer.ipc_handle import IpcHandle, read_handle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from octavo.workers.weight_transfer.backend import Place
    from octavo.workers.weight_transfer.description import TensorDescription

__all__ = ["CudaIpcBackend", "choose_handles"]


class CudaIpcBackend:
    """`update_info`: `ipc_handles`, for each tensor an object of handles by the UUID of the GPU that holds it.

    Each worker takes those of its own GPU. The trainer keeps the tensors as they are until it has the answer.
    `octavo.client.cuda_weights` makes all of it. Raises ControlError where the worker has no GPU.
    """

    def __init__(self, info: Mapping[str, Any], place: Place) -> None:
        if not place.device.startswith("cuda"):
            raise ControlError(
                f"'init_info.backend': ipc lends memory of a GPU, and this worker runs on {place.device}; use shm",
                "invalid",
                "init_info.backend",
            )
        self._device = torch.device(place.device)
        self._uuid = str(torch.cuda.get_device_properties(self._device).uuid)

    def receive(self, info: Mapping[str, Any], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        """See WeightBackend."""
        return self._lent(choose_handles(info, tensors, self._uuid), tensors)

    def alive(self) -> bool:
        """There is no connection that could end."""
        return True

    def close(self) -> None:
        """There is nothing to leave."""

    def _lent(self, handles: Sequence[IpcHandle], tensors: Sequence[TensorDescription]) -> Iterator[Tensor]:
        for handle, tensor in zip(handles, tensors, strict=True):
            try:
                yield _opened(handle, tensor, self._device)
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise ControlError(f"{tensor.name!r} cannot be read from the trainer: {reason}", "failed") from None
        torch.cuda.synchronize(self._device)  # what was lent may be written again when the answer is there


def choose_handles(info: Mapping[str, Any], tensors: Sequence[TensorDescription], uuid: str) -> list[IpcHandle]:
    """Return the handles of a GPU, one for each tensor. Raises ControlError that names the field."""
    given = info.get("ipc_handles")
    if not isinstance(given, list) or len(given) != len(tensors):
        got = f"{len(given)} entries" if isinstance(given, list) else repr(given)[:80]
        raise _wrong("ipc_handles", f"must have an entry for each of the {len(tensors)} tensors; got {got}")
    handles = []
    for index, (entry, tensor) in enumerate(zip(given, tensors, strict=True)):
        where = f"ipc_handles.{index}"
        mine = entry.get(uuid) if isinstance(entry, dict) else None
        if not isinstance(mine, dict):
            has = ", ".join(entry) if isinstance(entry, dict) else repr(entry)[:80]
            raise _wrong(where, f"has nothing for this worker's GPU {uuid}; it has {has}")
        handle = read_handle(mine, f"update_info.{where}.{uuid}")
        if handle.tensor_offset * tensor.dtype.itemsize + tensor.nbytes > handle.storage_bytes:
            raise _wrong(where, f"{tensor.name!r} of {tensor.nbytes} bytes does not fit its storage")
        handles.append(handle)
    return handles


def _opened(handle: IpcHandle, tensor: TensorDescription, device: torch.device) -> Tensor:  # tensor.shape, its dtype
    strides = torch.empty(tensor.shape, device="meta").stride()
    opened: Tensor = rebuild_cuda_tensor(  # type: ignore[no-untyped-call]
        torch.Tensor,
        tensor.shape,
        strides,
        handle.tensor_offset,
        torch.UntypedStorage,
        tensor.dtype,
        device.index,
        handle.memory,
        handle.storage_bytes,
        handle.storage_offset,
        False,
        handle.counter,
        handle.counter_offset,
        handle.event,
        handle.event_sync,
    )
    return opened


def _wrong(field: str, what: str) -> ControlError:
    return ControlError(f"'update_info.{field}' {what}", "invalid", f"update_info.{field}")
