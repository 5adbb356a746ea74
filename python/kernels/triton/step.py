"""One step of one KV group as the kernels want it: sizes on the host, everything else on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep

__all__ = ["DeviceStep", "device_step", "upload"]


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A step whose decode rows are known to the device alone, so that a CUDA graph can replay it.

    The first `num_decodes` rows have `queries` tokens each, and those lie first among the step's tokens. `starts` and
    `counts` describe the rows behind them; with none, every size is fixed and the tensors may change under a graph.
    """

    num_decodes: int
    queries: int
    lengths: Tensor  # [num_decodes] int32, device: tokens of the row with those of this step; 0: padding
    tables: Tensor  # [R, blocks] int32, device: block ids, valid as far as the row's tokens go
    rows: Tensor  # [T] int64, device: the row of each token
    positions: Tensor  # [T] int64, device: negative for the tokens of padding
    block_tokens: int
    longest: int = 0  # no decode row has more tokens; 0: unknown
    starts: tuple[int, ...] = ()  # of the rows behind the decode rows
    counts: tuple[int, ...] = ()


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
        longest=max(step.starts[: step.num_decodes], default=-1) + 1,
        starts=tuple(step.starts[step.num_decodes :]),
        counts=tuple(step.counts[step.num_decodes :]),
    )


def upload(values: Tensor, device: torch.device) -> Tensor:
    """Return `values`, of the host, on `device`, without waiting for the device."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
