"""Paged steps with random tables for attention tests."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.kernels.api import AttentionOps, KvCache, PagedStep

__all__ = ["Case", "dense_attention", "make_step"]


@dataclass(frozen=True)
class Case:
    """One step: (tokens in the cache before, tokens of the step) of each row; heads and sizes."""

    rows: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    block_tokens: int = 4


def make_step(case: Case, seed: int = 0) -> tuple[PagedStep, int]:
    """Return the step and the number of blocks. Blocks are scattered; entries behind a row's own are garbage."""
    generator = torch.Generator().manual_seed(seed)
    needs = [-(-(start + count) // case.block_tokens) for start, count in case.rows]
    width, total = max(needs) + 2, sum(needs) + 1
    order = (torch.randperm(total - 1, generator=generator) + 1).tolist()
    tables = torch.randint(0, total, (len(needs), width), generator=generator, dtype=torch.int32)
    for row, need in enumerate(needs):
        tables[row, :need] = torch.tensor([order.pop() for _ in range(need)], dtype=torch.int32)
    starts, counts = [start for start, _ in case.rows], [count for _, count in case.rows]
    decodes = next((i for i, count in enumerate(counts) if count != 1), len(counts))
    rows = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    positions = torch.cat([torch.arange(start, start + count) for start, count in case.rows])
    return PagedStep(starts, counts, decodes, case.block_tokens, tables, rows, positions), total


def fill(
    ops: AttentionOps, case: Case, step: PagedStep, cache: KvCache, k: list[torch.Tensor], v: list[torch.Tensor]
) -> None:
    """Write what each row has before the step, without rotation, through the implementation itself."""
    for row, start in enumerate(step.starts):
        if start:
            before = PagedStep(
                [0], [start], 1 if start == 1 else 0, case.block_tokens, step.tables[row : row + 1],
                torch.zeros(start, dtype=torch.int64), torch.arange(start),
            )  # fmt: skip
            one, zero = (
                torch.ones(start, case.dim, dtype=k[row].dtype),
                torch.zeros(start, case.dim, dtype=k[row].dtype),
            )
            prepared = ops.prepare(before, case.kv_heads)
            prepared.rotate_and_write(k[row][:start], k[row][:start], v[row][:start], one, zero, cache)


def dense_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, scale: float, window: int = 0, softcap: float = 0.0
) -> torch.Tensor:  # [T, N, D], [L, K, D], [L, K, D] -> [T, N, D] float64
    """Attend with loops over heads and tokens, in float64: as plain as can be."""
    out = torch.empty(q.shape, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for token in range(q.shape[0]):
        seen = start + token + 1
        first = max(0, seen - window) if window else 0
        for head in range(q.shape[1]):
            keys, values = k[first:seen, head // group].double(), v[first:seen, head // group].double()
            scores = keys @ q[token, head].double() * scale
            weights = torch.softmax(softcap * torch.tanh(scores / softcap) if softcap else scores, dim=0)
            out[token, head] = weights @ values
    return out
