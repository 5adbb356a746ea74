"""Recorded decode steps: a table of sizes, of which a step takes the smallest that fits."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.kernels.api import DecodeInputs, DeviceStep, SampleInputs
from octavo.layers.batch import ForwardBatch
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from octavo.kernels.api import Kernels, KvCache, PreparedAttention
    from octavo.layers.batch import Progress
    from octavo.models.base import Model
    from octavo.wire.worker import KvGroupAlloc
    from octavo.workers.state.block_tables import BlockTables
    from octavo.workers.state.slots import Slots

__all__ = ["DecodeGraphs", "GraphKey", "StepParts", "decode_sizes", "length_classes"]

_log = logging.getLogger(__name__)

#: Decode attention of short rows wants other cuts than that of any rows.
_SHORT = 1024

Ints = np.ndarray[Any, np.dtype[Any]]


def decode_sizes(rows: int) -> tuple[int, ...]:
    """Return the sizes to record for steps of 1 … `rows` rows; the last may be greater.

    Between 5 and 15 short rows, 16 padded ones are as fast as any (docs/gpu.md); 8 are for long ones, see `find`.
    """
    sizes = [1, 2, 4, 8, *range(16, 256, 8), *range(256, 512, 16), *range(512, rows + 32, 32)]
    first = next(index for index, size in enumerate(sizes) if size >= rows)
    return tuple(sizes[: first + 1])


def length_classes(max_model_len: int) -> tuple[int, ...]:
    """Return the bounds on lengths that steps are recorded for, ascending; 0: none."""
    return (_SHORT,) if max_model_len <= _SHORT else (_SHORT, 0)


@dataclass(frozen=True, slots=True)
class GraphKey:
    """What a recording is good for."""

    rows: int  # at most
    longest: int  # no row has more tokens, those of the step included; 0: any


@dataclass(frozen=True, slots=True)
class StepParts:
    """What a step is made of, and the state that it changes."""

    model: Model
    kernels: Kernels
    groups: tuple[KvGroupAlloc, ...]
    heads: dict[int, int]  # key-value heads by group
    caches: tuple[KvCache, ...]
    slots: Slots
    tables: BlockTables
    progress: Progress
    device: str


class DecodeGraphs:
    """Decode steps, recorded once, in which every row draws a token without top-k or top-p.

    A replay reads one small array from the host: which slots, their seeds and temperatures. All else (token ids,
    lengths, tables) is gathered on the device, so that a step can be launched before the one before it has ended.
    """

    def __init__(self, parts: StepParts, sizes: tuple[int, ...], max_model_len: int) -> None:
        """Record all of `sizes`, ascending. The state is not changed."""
        self._parts = parts
        self._sizes = sizes
        self._classes = length_classes(max_model_len)
        most, device = sizes[-1], parts.device
        self._control = torch.zeros(_control_bytes(most), dtype=torch.uint8, device=device)
        self._row = torch.arange(most, device=device)
        self._drawn: dict[GraphKey, Tensor] = {}  # [rows] int64 each
        self._zeros = torch.zeros(most, dtype=torch.int64, device=device)
        self._ones = torch.ones(most, dtype=torch.float32, device=device)
        ids = torch.zeros(most, dtype=torch.int32, device=device)
        positions, places, nexts = (torch.zeros(most, dtype=torch.int64, device=device) for _ in range(3))
        lengths = torch.zeros(most, dtype=torch.int32, device=device)
        self._inputs = {
            group.group: DecodeInputs(
                ids,
                positions,
                places,
                nexts,
                lengths,
                torch.zeros_like(parts.tables.whole(group.group)[:1]).repeat(most, 1),
            )
            for group in parts.groups
        }
        self._recorded: dict[GraphKey, Callable[[], None]] = {}
        self._record_all()

    def find(self, rows: int, longest: int) -> GraphKey | None:
        """Return the recording for a step, or None if none fits. `longest`: of the rows' tokens, with the step's."""
        bound = next((bound for bound in self._classes if not bound or longest <= bound), None)
        keys = (GraphKey(size, bound) for size in self._sizes if size >= rows and bound is not None)
        return next((key for key in keys if key in self._recorded), None)

    def _keys(self) -> Iterator[GraphKey]:
        """Yield what is recorded, the largest first: it makes the pool that the others share.

        Attention of long rows is split for the rows of its recording: with 8 of 16 there, half of the device would have
        nothing to do. Products of 16 rows are the faster ones, which decides for short rows.
        """
        for rows in reversed(self._sizes):
            for longest in self._classes:
                if not (longest and 4 < rows < 16 and 16 in self._sizes):
                    yield GraphKey(rows, longest)

    def replay(
        self, key: GraphKey, slots: Ints, seeds: Ints, temperatures: Ints
    ) -> Tensor:  # [R] int64, [R] int64, [R] float32 -> [R] int64
        """Run the recorded step; return the drawn tokens, which stay until the next replay."""
        packed = _pack_control(key.rows, slots, seeds, temperatures)
        self._control[: len(packed)].copy_(upload(packed, self._parts.device), non_blocking=True)
        self._recorded[key]()
        return self._drawn[key][: len(slots)]

    def _record_all(self) -> None:
        replay = self._parts.kernels.replay
        assert replay is not None
        started = time.monotonic()
        for key in self._keys():
            nobody = np.full(key.rows, -1, dtype=np.int64)
            padding = _pack_control(key.rows, nobody, nobody, np.zeros(key.rows, dtype=np.float32))
            self._control[: len(padding)].copy_(upload(padding, self._parts.device))
            self._recorded[key] = replay.record(lambda key=key: self._body(key))  # type: ignore[misc]
        _log.debug("%d decode steps recorded in %.1f s", len(self._recorded), time.monotonic() - started)

    def _body(self, key: GraphKey) -> None:
        parts, kernels = self._parts, self._parts.kernels
        slots, seeds, temperatures = _control_views(self._control, key.rows)
        attention, inputs = self._gather(key, slots)
        hidden = parts.model.forward(inputs.ids, ForwardBatch(inputs.places, attention, parts.caches, parts.progress))
        logits = parts.model.logits(hidden)
        draw = SampleInputs(
            temperature=temperatures,
            top_k=self._zeros[: key.rows],
            top_p=self._ones[: key.rows],
            seed=seeds,
            position=inputs.nexts,
            all_greedy=False,  # greedy rows cost no noise where others may have it
            any_top_k=False,
            any_top_p=False,
        )
        tokens = kernels.sample.sample(logits, draw)
        kernels.state.append(parts.slots.tokens, parts.slots.lengths, slots, tokens)
        self._drawn[key] = tokens  # of the recording, which is the last to come by

    def _gather(self, key: GraphKey, slots: Tensor) -> tuple[tuple[PreparedAttention, ...], DecodeInputs]:
        """Return each layer's attention, and the inputs (ids and positions are those of every group)."""
        parts, rows = self._parts, key.rows
        replay = parts.kernels.replay
        assert replay is not None
        attention: dict[int, PreparedAttention] = {}
        for group in parts.groups:
            whole = self._inputs[group.group]
            mine = whole.first(rows)
            replay.gather_decodes(
                parts.slots.tokens,
                parts.slots.lengths,
                parts.tables.whole(group.group),
                slots,
                mine,
                group.block_tokens,
            )
            step = DeviceStep(
                rows, 1, mine.lengths, mine.tables, self._row[:rows], mine.positions, group.block_tokens, key.longest
            )
            attention |= dict.fromkeys(group.layers, replay.prepare(step, parts.heads[group.group]))
        return tuple(attention[layer] for layer in range(len(parts.caches))), mine


def _stride(rows: int) -> int:
    """Return `rows` rounded up, so that every part of the control array begins at a multiple of 16 bytes."""
    return -(-rows // 4) * 4


def _control_bytes(rows: int) -> int:
    return 20 * _stride(rows)


def _control_views(control: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return slots, seeds and temperatures.  # [bytes] uint8 -> [rows] int64, [rows] int64, [rows] float32"""
    n = _stride(rows)
    slots, seeds = control[: 8 * n].view(torch.int64), control[8 * n : 16 * n].view(torch.int64)
    return slots[:rows], seeds[:rows], control[16 * n : 20 * n].view(torch.float32)[:rows]


def _pack_control(rows: int, slots: Ints, seeds: Ints, temperatures: Ints) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the control array of a step; rows without a slot are padding: slot -1, greedy."""
    n, used = _stride(rows), len(slots)
    packed = np.zeros(20 * n, dtype=np.uint8)
    all_slots = packed[: 8 * n].view(np.int64)
    all_slots[:used], all_slots[used:] = slots, -1
    packed[8 * n : 16 * n].view(np.int64)[:used] = seeds
    packed[16 * n :].view(np.float32)[:used] = temperatures
    return packed
