"""Recorded forward passes of small steps of any rows: what the host would else launch kernel by kernel.

A step of few tokens takes the device less time than the host needs for its launches. Here its forward is one launch;
drawing tokens follows as in steps that are not recorded, so that every way to draw works with it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.kernels.api import DecodeInputs, DeviceStep
from octavo.layers.batch import ForwardBatch
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from octavo.kernels.api import PreparedAttention
    from octavo.workers.graphs import StepParts

__all__ = ["ForwardGraphs", "ForwardKey", "forward_sizes"]

_log = logging.getLogger(__name__)

#: Tokens of the steps to record. Beyond the last the device takes longer than the launches (docs/gpu.md).
_SIZES = (16, 32, 64, 96, 128, 192, 256, 384, 512)
#: Rows of one token each that a recording is made for, besides as many as there can be: rows that are not there cost.
_FEW = 16

Ints = np.ndarray[Any, np.dtype[Any]]


def forward_sizes(tokens: int) -> tuple[int, ...]:
    """Return the sizes to record where steps have at most `tokens` tokens; the last may be greater."""
    return tuple(size for index, size in enumerate(_SIZES) if not index or _SIZES[index - 1] < tokens)


@dataclass(frozen=True, slots=True)
class ForwardKey:
    """What a recording is good for."""

    tokens: int  # of the step, at most
    decodes: int  # leading rows of one token, at most


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the parts of a recording's control array lie."""

    tokens: int
    rows: int
    decodes: int
    work: int  # int32 elements

    @property
    def nbytes(self) -> int:
        """The array's size."""
        return 8 * (self.rows + 2 * self.tokens) + 8 * -(-(self.decodes + self.work) // 2)

    def views(self, control: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return slots, rows of tokens, positions (int64), lengths and work (int32) of a uint8 array or tensor."""
        int64, int32 = (torch.int64, torch.int32) if isinstance(control, torch.Tensor) else (np.int64, np.int32)
        wide = 8 * (self.rows + 2 * self.tokens)
        first, second = control[:wide].view(int64), control[wide : self.nbytes].view(int32)
        at = self.rows + self.tokens
        return (
            first[: self.rows],
            first[self.rows : at],
            first[at:],
            second[: self.decodes],
            second[self.decodes : self.decodes + self.work],
        )


class ForwardGraphs:
    """Forward passes, recorded once. A replay reads one small array from the host; token ids come from the slots."""

    def __init__(self, parts: StepParts, sizes: tuple[int, ...], max_num_seqs: int) -> None:
        """Record steps of all of `sizes` tokens, ascending. The state is not changed."""
        replay = parts.kernels.replay
        assert replay is not None
        self._parts, self._replay, self._sizes, self._most = parts, replay, sizes, max_num_seqs
        most = sizes[-1]
        rows, device = min(most, max_num_seqs), parts.device
        layouts = {key: self._layout(key) for size in sizes for key in self._keys(size)}
        largest = max(layout.nbytes for layout in layouts.values())
        self._control = torch.zeros(largest, dtype=torch.uint8, device=device)
        # What gathering decode rows yields besides their tables; nobody reads it.
        ids, lengths = (torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(2))
        positions, places, nexts = (torch.zeros(rows, dtype=torch.int64, device=device) for _ in range(3))
        self._gathered = {
            group.group: DecodeInputs(
                ids,
                positions,
                places,
                nexts,
                lengths,
                torch.zeros_like(parts.tables.whole(group.group)[:1]).repeat(rows, 1),
            )
            for group in parts.groups
        }
        self._hidden: Tensor | None = None  # [most, hidden] dtype
        self._layouts = layouts
        self._recorded: dict[ForwardKey, Callable[[], None]] = {}
        self._record_all()

    def replay(
        self, slots: Ints, starts: Ints, counts: Ints, decodes: int
    ) -> Tensor | None:  # [R] int64, three times -> [T, hidden] dtype
        """Run the recorded forward of a step; None if none fits. The result stays until the next replay.

        `counts` tokens of each row are computed from `starts` on; the first `decodes` rows have one token each.
        """
        total = int(counts.sum())
        size = next((size for size in self._sizes if size >= total), None)
        if size is None:
            return None
        key = next((key for key in self._keys(size) if key.decodes >= decodes), None)
        if key is None or len(slots) > self._layouts[key].rows:
            return None
        packed = self._pack(key, slots, starts, counts, decodes)
        if packed is None:
            return None
        self._control[: len(packed)].copy_(upload(packed, self._parts.device), non_blocking=True)
        self._recorded[key]()
        assert self._hidden is not None
        return self._hidden[:total]

    def _keys(self, size: int) -> list[ForwardKey]:
        rows = min(size, self._most)
        return [ForwardKey(size, decodes) for decodes in sorted({min(_FEW, rows), rows})]

    def _layout(self, key: ForwardKey) -> _Layout:
        return _Layout(key.tokens, min(key.tokens, self._most), key.decodes, self._replay.work_size(key.tokens))

    def _pack(
        self, key: ForwardKey, slots: Ints, starts: Ints, counts: Ints, decodes: int
    ) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """Return a step's control array; None if its rows need more work than the recording has room for."""
        layout = self._layouts[key]
        packed = np.zeros(layout.nbytes, dtype=np.uint8)
        all_slots, row_of, positions, lengths, work = layout.views(packed)
        used, total = len(slots), int(counts.sum())
        all_slots[:used], all_slots[used:] = slots, -1
        row_of[:total] = np.repeat(np.arange(used), counts)
        begins = np.cumsum(counts) - counts
        positions[:total] = np.arange(total) + (starts - begins)[row_of[:total]]
        positions[total:] = -1
        lengths[:decodes], lengths[decodes:] = starts[:decodes] + 1, -1
        heads = max(self._parts.heads.values())
        fits = self._replay.cut(starts[decodes:], counts[decodes:], decodes, heads, work)
        return packed if fits else None

    def _record_all(self) -> None:
        started = time.monotonic()
        nobody = np.zeros(0, dtype=np.int64)
        for key in sorted(self._layouts, key=lambda key: (key.tokens, key.decodes), reverse=True):
            padding = self._pack(key, nobody, nobody, nobody, 0)
            assert padding is not None
            self._control[: len(padding)].copy_(upload(padding, self._parts.device))
            self._recorded[key] = self._replay.record(lambda key=key: self._body(key))  # type: ignore[misc]
        _log.debug("%d forward passes recorded in %.1f s", len(self._recorded), time.monotonic() - started)

    def _body(self, key: ForwardKey) -> None:
        parts = self._parts
        slots, row_of, positions, lengths, work = self._layouts[key].views(self._control)
        ids = parts.kernels.state.gather_ids(parts.slots.tokens, slots.index_select(0, row_of), positions)
        attention = self._attention(key, slots, row_of, positions, lengths, work)
        places = positions.clamp(min=0)  # what padding computes is dropped
        hidden = parts.model.forward(ids, ForwardBatch(places, attention, parts.caches, parts.progress))
        if self._hidden is None:
            self._hidden = torch.empty(self._sizes[-1], hidden.shape[1], dtype=hidden.dtype, device=hidden.device)
        self._hidden[: key.tokens].copy_(hidden)

    def _attention(
        self, key: ForwardKey, slots: Tensor, row_of: Tensor, positions: Tensor, lengths: Tensor, work: Tensor
    ) -> tuple[PreparedAttention, ...]:  # [R] int64, [T] int64, [T] int64, [decodes] int32, [work] int32
        """Gather the rows' tables; return each layer's attention."""
        parts = self._parts
        attention: dict[int, PreparedAttention] = {}
        for group in parts.groups:
            whole = self._gathered[group.group]
            mine = whole.first(slots.shape[0])
            table = parts.tables.whole(group.group)
            self._replay.gather_decodes(parts.slots.tokens, parts.slots.lengths, table, slots, mine, group.block_tokens)
            step = DeviceStep(key.decodes, 1, lengths, mine.tables, row_of, positions, group.block_tokens, work=work)
            attention |= dict.fromkeys(group.layers, self._replay.prepare(step, parts.heads[group.group]))
        return tuple(attention[layer] for layer in range(len(parts.caches)))
