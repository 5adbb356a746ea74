"""Numbers of single rows, on their way to a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["device_table"]


def device_table(lines: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:  # -> [n, fields] int64
    """Return lines of equal length on the device. A GPU does not make the host wait."""
    host = torch.tensor(lines, dtype=torch.int64)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
