"""Attention of whole prompts with no cached prefix, on dense tensors by cuDNN: on Hopper, the fastest there is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.triton.step import DeviceStep

__all__ = ["FreshRun", "attend_fresh", "fresh_runs", "has_fresh"]

#: Tokens from which on a row is worth a call of its own (measured on an H200, docs/gpu.md).
MIN_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class FreshRun:
    """Neighbouring rows of equal length without a prefix."""

    first_row: int  # behind the decode rows
    first_token: int  # of the step
    rows: int
    tokens: int  # of each row


@cache
def has_fresh(device: torch.device) -> bool:
    """Return whether cuDNN's attention is there and known to win: on compute capability 9.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def fresh_runs(step: DeviceStep) -> tuple[FreshRun, ...]:
    """Return the runs of the step's rows that have no prefix and MIN_TOKENS tokens or more."""
    runs: list[FreshRun] = []
    token = step.num_decodes * step.queries
    for row, (start, count) in enumerate(zip(step.starts, step.counts, strict=True)):
        if start == 0 and count >= MIN_TOKENS:
            last = runs[-1] if runs else None
            if last and last.first_row + last.rows == row and last.tokens == count:
                runs[-1] = FreshRun(last.first_row, last.first_token, last.rows + 1, count)
            else:
                runs.append(FreshRun(row, token, 1, count))
        token += count
    return tuple(runs)


def attend_fresh(
    q: Tensor,  # [T, N, D] bfloat16
    k: Tensor,  # [T, K, D], rotated
    v: Tensor,  # [T, K, D]
    run: FreshRun,
    scale: float,
) -> Tensor:  # [rows * tokens, N, D]
    """Return the causal attention of the run's tokens, each to its own row."""
    mine = slice(run.first_token, run.first_token + run.rows * run.tokens)
    q_rows, k_rows, v_rows = (
        tensor[mine].view(run.rows, run.tokens, *tensor.shape[1:]).transpose(1, 2) for tensor in (q, k, v)
    )
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION] if q.is_cuda else [SDPBackend.MATH]):
        out = F.scaled_dot_product_attention(q_rows, k_rows, v_rows, is_causal=True, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2).reshape(-1, *q.shape[1:])
