"""One step of one KV group as the kernels want it: sizes on the host, everything else on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.api import DeviceStep
from octavo.kernels.triton.decode import SHORT

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep

__all__ = ["DeviceStep", "device_step", "upload"]


def device_step(step: PagedStep) -> DeviceStep:
    """Return `step` with the lengths of its decode rows on the device."""
    device = step.tables.device
    lengths = torch.tensor([start + 1 for start in step.starts[: step.num_decodes]], dtype=torch.int32)
    return DeviceStep(
        num_decodes=step.num_decodes,
        queries=1,
        lengths=upload(lengths, device),
        tables=step.tables,
        rows=step.rows,
        positions=step.positions,
        block_tokens=step.block_tokens,
        longest=SHORT if max(step.starts[: step.num_decodes], default=0) < SHORT else 0,
        starts=tuple(step.starts[step.num_decodes :]),
        counts=tuple(step.counts[step.num_decodes :]),
    )


def upload(values: Tensor, device: torch.device) -> Tensor:
    """Return `values`, of the host, on `device`, without waiting for the device."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
