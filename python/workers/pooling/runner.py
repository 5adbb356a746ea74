"""The runner of models that pool: a step's rows give vectors when the end of their tokens is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from octavo.errors import ProtocolError
from octavo.wire.frontend import Pooling
from octavo.workers.pooling.gathering import ALL, Gathering
from octavo.workers.pooling.pooler import Pooler
from octavo.workers.runner import Drawn, Runner, Vectors

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import Kernels
    from octavo.layers.batch import ForwardBatch, Progress
    from octavo.models.base import Model
    from octavo.models.pooling import PoolingModel
    from octavo.wire.pooling_plan import PoolingPlan
    from octavo.wire.worker import KvGroupAlloc, StepPlan
    from octavo.workers.runner import Limits, StepRows

__all__ = ["PoolingRunner"]


class PoolingRunner(Runner):
    """Carries out plans as its base does, up to the hidden states.

    Of each request it keeps what its vectors need of the tokens that are computed; a request that starts over brings
    a new row, with which that begins anew. Rows of encoders stand whole in a step.
    """

    def __init__(
        self,
        model: PoolingModel,
        kernels: Kernels,
        limits: Limits,
        groups: tuple[KvGroupAlloc, ...],
        device: str,
        plan: PoolingPlan,
        progress: Progress | None = None,
    ) -> None:
        """Allocate everything that lasts. Raises ProtocolError if `groups` does not fit the model."""
        super().__init__(model, kernels, limits, groups, device, graph_sizes=(), progress=progress)
        self._plan = plan
        self._pooler = Pooler(plan, model.classifier)
        self._wanted: dict[int, tuple[Pooling, Gathering]] = {}  # by slot

    def use(self, model: Model) -> None:
        super().use(model)
        classifier = getattr(model, "classifier", None)
        self._pooler = Pooler(self._plan, classifier)

    @torch.inference_mode()
    def step(self, plan: StepPlan) -> Drawn | None:
        """Carry out one plan. Raises ProtocolError if it does not fit."""
        if plan.deferred:
            raise ProtocolError(f"step {plan.step} is deferred, and nothing is drawn here")
        self._apply(plan)
        for slot in np.frombuffer(plan.released, dtype="<i4").tolist():
            self._wanted.pop(slot, None)
        for row in plan.new:
            wanted = row.pooling or Pooling(self._pooler.default())
            self._wanted[row.slot] = (wanted, Gathering(self._pooler.kind(wanted)))
        rows = self._rows(plan)
        if not len(rows.slots):
            return self._none()
        self._gather(rows)
        self._slots.advance(rows.slots, rows.counts)
        which = np.flatnonzero(rows.samples)
        slots = rows.slots[which]
        drawn = Drawn(slots.astype(np.int32), self._slots.generation[slots], torch.zeros(0, dtype=torch.int64))
        return replace(drawn, pooled=self._finish([int(slot) for slot in slots]))

    def _gather(self, rows: StepRows) -> None:
        """Compute the step's hidden states and hand each row's to its request."""
        ids, batch = self._prepare(rows)
        slots = [int(slot) for slot in rows.slots]
        if self._plan.encoder:
            if rows.starts.any() or not rows.samples.all():
                raise ProtocolError("a row of an encoder does not stand whole in its step")
            hidden = self._model.forward(ids, self._whole(batch, rows, slots))
        elif all(self._pooler.needs_last_alone(self._wanted[slot][0]) for slot in slots):
            self._gather_last(rows, slots, ids, batch)
            return
        else:
            hidden = self._model.forward(ids, batch)
        begin = 0
        for slot, start, count in zip(slots, rows.starts.tolist(), rows.counts.tolist(), strict=True):
            gathering = self._wanted[slot][1]
            gathering.add(hidden[begin : begin + count], start)
            begin += count

    def _gather_last(self, rows: StepRows, slots: list[int], ids: Tensor, batch: ForwardBatch) -> None:
        """As `_gather`, with the last layer computing no more than the tokens that end a prompt."""
        which = np.flatnonzero(rows.samples)
        asked = which if len(which) else np.zeros(1, dtype=np.int64)
        if len(asked) < len(ids):
            batch = replace(batch, ending=self._ending(rows, asked))
        hidden = self._model.forward(ids, batch)
        for place, row in enumerate(which.tolist()):
            gathering = self._wanted[slots[row]][1]
            gathering.add(hidden[place : place + 1], int(rows.starts[row] + rows.counts[row]) - 1)

    def _whole(self, batch: ForwardBatch, rows: StepRows, slots: list[int]) -> ForwardBatch:
        """Return the batch of an encoder: where rows are, and which text of a pair each token is of."""
        counts = rows.counts.tolist()
        seconds = [self._wanted[slot][0].second for slot in slots]
        segments = None
        if any(seconds):
            parts = [np.arange(count) >= (second or count) for count, second in zip(counts, seconds, strict=True)]
            segments = self._move(np.concatenate(parts).astype(np.int32))
        return replace(batch, counts=tuple(counts), segments=segments)

    def _finish(self, slots: list[int]) -> Vectors | None:
        """Return the vectors of the slots whose prompts are computed, those that want the same made together."""
        if not slots:
            return None
        taken = [(wanted, gathering.take()) for wanted, gathering in (self._wanted.pop(slot) for slot in slots)]
        groups: dict[Pooling, list[int]] = {}
        for place, (wanted, _) in enumerate(taken):
            groups.setdefault(_without_pair(wanted), []).append(place)
        made: dict[int, Tensor] = {}
        for wanted, places in groups.items():
            whole = self._pooler.finish(torch.cat([taken[place][1] for place in places]), wanted)
            parts = torch.split(whole, [taken[place][1].shape[0] for place in places])
            for place, part in zip(places, parts, strict=True):
                made[place] = self._marked(slots[place], part, wanted)
        shapes = tuple((made[place].shape[0], made[place].shape[1]) for place in range(len(slots)))
        return Vectors(torch.cat([made[place].flatten() for place in range(len(slots))]), shapes)

    def _marked(self, slot: int, part: Tensor, wanted: Pooling) -> Tensor:  # [n, width] float32 -> [m, width]
        if self._pooler.kind(wanted) != ALL:
            return part
        return self._pooler.steps(part, self._slots.tokens[slot, : part.shape[0]])


def _without_pair(wanted: Pooling) -> Pooling:
    """Return what a request wants without where its second text begins: the same for all pairs."""
    return Pooling(wanted.task, wanted.activate, wanted.dimensions)
