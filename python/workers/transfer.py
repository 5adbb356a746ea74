"""Between host and device without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = ["Download", "upload"]


def upload(values: np.ndarray[Any, Any], device: str) -> Tensor:  # the same shape and dtype
    """Return `values` on `device`, for what is launched from now on. A GPU does not make the host wait."""
    host = torch.from_numpy(values)
    if not device.startswith("cuda"):
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


class Download:
    """What a tensor holds now, on its way to the host, behind all that was launched before."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if not tensor.is_cuda:
            self._host = tensor.clone()
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        # A thread that waits for it sleeps.
        self._event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._event.record()

    @property
    def immediate(self) -> bool:
        """Whether the values were on the host already."""
        return self._event is None

    def wait(self) -> np.ndarray[Any, Any]:  # the tensor's shape and dtype
        """Return the values, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.numpy()
