"""Paged causal attention in Triton: split keys for decode rows, tiles of queries for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from octavo.kernels.api import KvCache
from octavo.kernels.triton.behind import attend_behind
from octavo.kernels.triton.common import num_processors
from octavo.kernels.triton.decode import Workspace, attend_decodes, decode_shape, rounded_rows
from octavo.kernels.triton.fresh import attend_fresh, fresh_runs, has_fresh
from octavo.kernels.triton.prefill import WORK_TOKENS, PrefillWork, attend_prefills, prefill_shape, work_shape
from octavo.kernels.triton.rotary import rotate_and_write
from octavo.kernels.triton.step import device_step, upload
from octavo.kernels.triton.tiles import MERGE_FIELDS, TILE_FIELDS, cut_tiles, work_room

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import PagedStep, QkNorm
    from octavo.kernels.triton.fresh import FreshRun
    from octavo.kernels.triton.step import DeviceStep

__all__ = ["TritonAttention", "TritonPrepared"]


class TritonAttention:
    """AttentionOps in Triton. Cache layout as in `ref`, [block, kv_head, token, dim]: a head's page is contiguous."""

    def __init__(self) -> None:
        self._workspaces: dict[torch.device, Workspace] = {}

    def allocate(
        self, num_blocks: int, block_tokens: int, heads: int, head_dim: int, dtype: str, device: str
    ) -> KvCache:
        shape = (num_blocks, heads, block_tokens, head_dim)
        kind: torch.dtype = getattr(torch, dtype)
        return KvCache(torch.zeros(shape, dtype=kind, device=device), torch.zeros(shape, dtype=kind, device=device))

    def prepare(self, step: PagedStep, heads: int) -> TritonPrepared:
        return self.prepare_device(device_step(step), heads)

    def prepare_device(self, step: DeviceStep, heads: int) -> TritonPrepared:
        """Return the attention of a step whose decode rows the device describes; a CUDA graph may hold its launches."""
        device = step.tables.device
        if device not in self._workspaces:
            self._workspaces[device] = Workspace(device)
        return TritonPrepared(step, heads, self._workspaces[device])


class TritonPrepared:
    """PreparedAttention in Triton, with the options that some families need."""

    def __init__(self, step: DeviceStep, heads: int, workspace: Workspace) -> None:
        self._step = step
        self._heads = heads
        self._workspace = workspace
        self._work: dict[tuple[int, int, int, bool], PrefillWork] = {}
        self._runs = fresh_runs(step) if has_fresh(step.tables.device) else ()
        # Keys, rotated, and values of the layer at hand, for the rows that are attended to on dense tensors.
        self._fresh: tuple[Tensor, Tensor] | None = None

    def rotate_and_write(
        self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, cache: KvCache, norm: QkNorm | None = None
    ) -> Tensor:  # [T, N, D], [T, K, D], [T, K, D], [T, D], [T, D] dtype -> [T, N, D] dtype
        """As in the protocol; with `norm`, queries and keys pass through it first. May overwrite `k`."""
        keep = bool(self._runs) and q.dtype == torch.bfloat16
        out = rotate_and_write(q, k, v, cos, sin, cache, self._step, norm, keep)
        self._fresh = (k, v) if keep else None
        return out

    def attend(
        self,
        q: Tensor,
        cache: KvCache,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Tensor | None = None,
    ) -> Tensor:  # [T, N, D] dtype, [N] -> [T, N, D] dtype
        """As in the protocol, with options.

        A token sees at most `window` keys, its own included (0: all). Scores pass through softcap * tanh(score /
        softcap) (0: as they are). `sinks` are logits, one a query head, that take part in the softmax without a value.
        """
        step, group, wide = self._step, q.shape[1] // self._heads, q.dtype == torch.float32
        fresh, self._fresh = self._fresh, None
        if window or softcap or sinks is not None:
            fresh = None
        if fresh and len(self._runs) == 1 and not self._runs[0].prefix:
            run = self._runs[0]
            if run.rows * run.dense == q.shape[0]:
                return attend_fresh(q, *fresh, run, scale).reshape(q.shape)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if step.num_decodes:
            rows = rounded_rows(step.num_decodes, step.longest)
            cut = decode_shape(q.shape[2], wide, rows * self._heads, step.longest)
            attend_decodes(q, cache, out, step, self._workspace, scale, window, softcap, sinks, cut)
        if fresh:
            for run in self._runs:
                self._attend_run(q, *fresh, cache, run, scale, out)
        if step.work is not None:
            shape = work_shape(q.shape[2], group, wide)
            attend_prefills(
                q, cache, out, step, _recorded_work(step.work, q.shape[0]), shape, scale, window, softcap, sinks
            )
        if step.counts:
            shape = prefill_shape(q.shape[2], group, wide, max(step.counts))
            work = self.work(shape.block_m // group, shape.block_n, window, not fresh)
            if len(work.tiles):
                attend_prefills(q, cache, out, step, work, shape, scale, window, softcap, sinks)
        return out

    def _attend_run(
        self, q: Tensor, k: Tensor, v: Tensor, cache: KvCache, run: FreshRun, scale: float, out: Tensor
    ) -> None:  # [T, N, D], [T, K, D], [T, K, D], [T, N, D] bfloat16
        """Write the attention of a run's dense tokens to `out`."""
        if run.prefix:
            table = self._step.tables[self._step.num_decodes + run.first_row]
            attend_behind(q, k, v, cache, table, run, scale, out)
            return
        mine = out[run.first_token : run.first_token + run.rows * run.tokens]
        mine.view(run.rows, run.tokens, *out.shape[1:])[:, : run.dense] = attend_fresh(q, k, v, run, scale)

    def work(self, tile_tokens: int, block_n: int, window: int, whole: bool) -> PrefillWork:
        """Return the tiles of the rows behind the decode rows, on the device; not `whole`: without what is dense."""
        key = (tile_tokens, block_n, window, whole)
        if key not in self._work:
            device = self._step.tables.device
            dense = [0] * len(self._step.counts)
            for run in () if whole else self._runs:
                dense[run.first_row : run.first_row + run.rows] = [run.dense] * run.rows
            programs = max(1, num_processors(device) // self._heads)
            tiles = cut_tiles(self._step, dense, tile_tokens, block_n, window, programs)
            both = upload(torch.cat((tiles.tiles.flatten(), tiles.merges.flatten())), device)
            cells = tiles.tiles.numel()
            self._work[key] = PrefillWork(
                both[:cells].view(tiles.tiles.shape), both[cells:].view(tiles.merges.shape), tiles.parts
            )
        return self._work[key]


def _recorded_work(work: Tensor, tokens: int) -> PrefillWork:  # [n] int32
    """Return the tiles of a recorded step of `tokens` tokens; each may be a part."""
    tiles, merges = work_room(tokens, WORK_TOKENS)
    cells = tiles * TILE_FIELDS
    return PrefillWork(work[:cells].view(tiles, TILE_FIELDS), work[cells:].view(merges, MERGE_FIELDS), tiles)
