"""Attention of long prompts and chunks on dense tensors by cuDNN: on Hopper, the fastest there is.

Here are the rows that are fit for it, and those without a cached prefix; behind.py has the others.
"""

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

#: Dense tokens come in multiples of STEP: cuDNN plans each new shape, strides included, for 65 ms, so they must recur.
#: What a row has beyond them goes through the cache. From MIN_TOKENS on the dense part wins (measured on an H200,
#: docs/gpu.md).
STEP = 512
MIN_TOKENS = 1024
#: Tokens of a row behind a prefix from which on the detour over a dense copy of the prefix wins. A prefix that is no
#: multiple of STEP would be a new shape each time, one beyond MOST_PREFIX a large copy.
MIN_BEHIND = 2048
MOST_PREFIX = 65536


@dataclass(frozen=True, slots=True)
class FreshRun:
    """Neighbouring rows of equal length without a prefix, or one row behind a prefix."""

    first_row: int  # behind the decode rows
    first_token: int  # of the step
    rows: int  # a power of two; 1 if not all tokens are dense
    tokens: int  # of each row
    dense: int  # of them, how many are attended to on dense tensors
    prefix: int = 0  # tokens in the cache before them, a multiple of STEP


@cache
def has_fresh(device: torch.device) -> bool:
    """Return whether cuDNN's attention is there and known to win: on compute capability 9.0."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def fresh_runs(step: DeviceStep) -> tuple[FreshRun, ...]:
    """Return the runs of the step's rows: MIN_TOKENS tokens or more, MIN_BEHIND behind a prefix of whole STEPs."""
    runs: list[FreshRun] = []
    token, row = step.num_decodes * step.queries, 0
    while row < len(step.counts):
        count, start, rows = step.counts[row], step.starts[row], 1
        if _behind(start, count, step.block_tokens):
            runs.append(FreshRun(row, token, 1, count, count // STEP * STEP, start))
        elif start == 0 and count >= MIN_TOKENS:
            # Rows that are not wholly dense lie at distances that hardly recur: one at a time.
            while (
                count % STEP == 0
                and step.starts[row : row + 2 * rows] == (0,) * (2 * rows)
                and (step.counts[row : row + 2 * rows] == (count,) * (2 * rows))
            ):
                rows *= 2
            runs.append(FreshRun(row, token, rows, count, count // STEP * STEP))
        row += rows
        token += rows * count
    return tuple(runs)


def _behind(start: int, count: int, block_tokens: int) -> bool:
    return 0 < start <= MOST_PREFIX and not start % STEP and not start % block_tokens and count >= MIN_BEHIND


def attend_fresh(
    q: Tensor,  # [T, N, D] bfloat16
    k: Tensor,  # [T, K, D], rotated
    v: Tensor,  # [T, K, D]
    run: FreshRun,
    scale: float,
) -> Tensor:  # [rows, dense, N, D]
    """Return the causal attention of the run's dense tokens, each to its own row."""
    mine = slice(run.first_token, run.first_token + run.rows * run.dense)  # a single row, or rows that are wholly dense
    q_rows, k_rows, v_rows = (
        tensor[mine].view(run.rows, run.dense, *tensor.shape[1:]).transpose(1, 2) for tensor in (q, k, v)
    )
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION] if q.is_cuda else [SDPBackend.MATH]):
        out = F.scaled_dot_product_attention(q_rows, k_rows, v_rows, is_causal=True, scale=scale, enable_gqa=grouped)
    return out.transpose(1, 2)
