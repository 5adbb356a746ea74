"""Paged steps with everything poisoned that a kernel has no business to read, and an oracle in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.kernels.api import KvCache, PagedStep

NAN = float("nan")
#: A block id that no cache holds.
NOWHERE = 2**30


@dataclass(frozen=True)
class Case:
    """A step and the cache it meets: keys and values of earlier tokens in it, NaN everywhere else."""

    step: PagedStep
    cache: KvCache
    q: torch.Tensor  # [T, N, D]
    k: torch.Tensor  # [T, K, D]
    v: torch.Tensor
    cos: torch.Tensor  # [T, D]
    sin: torch.Tensor
    history: list[tuple[torch.Tensor, torch.Tensor]]  # per row: keys and values [start, K, D] of the cached tokens

    @property
    def tokens(self) -> int:
        return self.q.shape[0]


def make_case(
    rows: list[tuple[int, int]],  # cached tokens and new tokens of each row; decode rows first
    heads: int,
    group: int,
    dim: int,
    block_tokens: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    starts, counts = [start for start, _ in rows], [count for _, count in rows]
    blocks = [-(-(start + count) // block_tokens) for start, count in rows]
    order = (torch.randperm(sum(blocks)) + 1).tolist()
    tables = torch.full((len(rows), max(blocks) + 2), NOWHERE, dtype=torch.int32)
    pages = torch.full((sum(blocks) + 1, heads, block_tokens, dim), NAN, dtype=dtype)
    k_pages, v_pages = pages.clone(), pages
    history = []
    for row, (start, _) in enumerate(rows):
        mine = [order.pop() for _ in range(blocks[row])]
        tables[row, : len(mine)] = torch.tensor(mine, dtype=torch.int32)
        old_k, old_v = (torch.randn(start, heads, dim).to(dtype) for _ in range(2))
        for at in range(start):
            k_pages[mine[at // block_tokens], :, at % block_tokens] = old_k[at]
            v_pages[mine[at // block_tokens], :, at % block_tokens] = old_v[at]
        history.append((old_k, old_v))
    decodes = 0
    while decodes < len(rows) and counts[decodes] == 1:
        decodes += 1
    step = PagedStep(
        starts=starts,
        counts=counts,
        num_decodes=decodes,
        block_tokens=block_tokens,
        tables=tables.to(device),
        rows=torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(counts)).to(device),
        positions=torch.cat([torch.arange(s, s + c) for s, c in rows]).to(device),
    )
    total, wide = sum(counts), (group + 2) * heads
    # As in a model, the three are views of one product.
    qkv = torch.randn(total, wide, dim).to(dtype).to(device)
    angle = torch.randn(total, dim // 2).repeat(1, 2)
    return Case(
        step=step,
        cache=KvCache(k_pages.to(device), v_pages.to(device)),
        q=qkv[:, : group * heads],
        k=qkv[:, group * heads : (group + 1) * heads],
        v=qkv[:, (group + 1) * heads :],
        cos=angle.cos().to(dtype).to(device),
        sin=angle.sin().to(dtype).to(device),
        history=history,
    )


def fill(case: Case) -> None:
    """Put the keys and values of the step into the cache as they are."""
    step = case.step
    block = step.tables[step.rows, step.positions // step.block_tokens].long()
    case.cache.k[block, :, step.positions % step.block_tokens] = case.k
    case.cache.v[block, :, step.positions % step.block_tokens] = case.v


def expected(
    case: Case, scale: float, window: int = 0, softcap: float = 0.0, sinks: torch.Tensor | None = None
) -> torch.Tensor:  # [T, N, D] float64
    """Return the attention that each token of `case` pays to its row, in float64 on the CPU."""
    out, at = [], 0
    for (old_k, old_v), start, count in zip(case.history, case.step.starts, case.step.counts, strict=True):
        mine = slice(at, at + count)
        at += count
        k = torch.cat((old_k, case.k[mine].cpu())).double()
        v = torch.cat((old_v, case.v[mine].cpu())).double()
        q = case.q[mine].cpu().double()
        group = q.shape[1] // k.shape[1]
        scores = torch.einsum("tnd,lnd->ntl", q, k.repeat_interleave(group, dim=1)) * scale
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        position = torch.arange(start, start + count).unsqueeze(1)
        key = torch.arange(start + count).unsqueeze(0)
        hidden = (key > position) | ((key <= position - window) if window else torch.zeros(1, dtype=torch.bool))
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            sink = sinks.cpu().double().view(-1, 1, 1).expand(-1, count, 1)
            weights = torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]
        else:
            weights = scores.softmax(dim=-1)
        out.append(torch.einsum("ntl,lnd->tnd", weights, v.repeat_interleave(group, dim=1)))
    return torch.cat(out)


def close(actual: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    """Fail unless the relative error is that of one rounding to `dtype` (and what products in it lose). NaN fails."""
    actual, wanted = actual.cpu().double(), wanted.cpu().double()
    assert actual.shape == wanted.shape
    limit = 1e-5 if dtype == torch.float32 else 6e-3
    scale = float(wanted.norm()) or 1.0
    assert float((actual - wanted).norm()) / scale < limit
    assert float((actual - wanted).abs().max()) <= 20 * limit * float(wanted.abs().max() or 1.0)
