"""The runner: carries out plans.

Charter. One step is apply, prepare, forward, sample, in this order and nothing else:
- apply: slots are released and taken, block tables and tokens brought up to date by staged changes;
- prepare: the step's rows become positions, token ids and one attention object for each KV group. Ids come from the
  slots' history on the device, so that tokens drawn by the step before need not pass through the host;
- forward: the model, over all tokens of the step;
- sample: logits of the rows that reach the end of their tokens, one token each, appended to the history. In a deferred
  step it waits for the masks, which come in a message of their own.
Where the kernels can record launches, prepare, forward and sample of a decode step are one replay (see graphs.py), and
prepare and forward of other small steps (see forward_graphs.py).
Nothing here waits for the device: a step may be launched before the one before it has ended.
The runner knows no model, no attention kind and no device. It checks what the plan says about slots against what it
has; a plan that does not fit is a ProtocolError, never silent garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.errors import ProtocolError
from octavo.kernels.api import PagedStep
from octavo.layers.batch import Ending, ForwardBatch, Progress
from octavo.workers.forward_graphs import ForwardGraphs, forward_sizes
from octavo.workers.graphs import DecodeGraphs, StepParts, decode_sizes
from octavo.workers.memory import allocate_caches, cache_bytes
from octavo.workers.sampling.logprobs import of_prompt
from octavo.workers.sampling.masking import mask_logits
from octavo.workers.sampling.sampler import Sampler
from octavo.workers.state.block_tables import BlockTables
from octavo.workers.state.given import GivenPrompts
from octavo.workers.state.slots import Slots
from octavo.workers.transfer import upload

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import Kernels, PreparedAttention
    from octavo.layers.batch import Given
    from octavo.models.base import Model
    from octavo.wire.worker import KvGroupAlloc, SamplePlan, StepPlan
    from octavo.workers.sampling.logprobs import Packed

__all__ = ["Drawn", "Limits", "Runner", "StepRows", "Vectors"]

Ints = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a runner's arrays are made for."""

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int = 1 << 30
    logprobs_mode: str = "raw_logprobs"  # as in wire.worker.Init


@dataclass(frozen=True, slots=True)
class Vectors:
    """What the rows of a step gave, one after the other."""

    values: Tensor  # [n] float32, device: of all rows
    shapes: tuple[tuple[int, int], ...]  # of each row: vectors, numbers of a vector


@dataclass(frozen=True, slots=True)
class Drawn:
    """The rows of a step that drew, in the order of the plan."""

    slots: Ints  # [R] int32
    generations: Ints  # [R] int32
    tokens: Tensor  # [R] int64, device; valid until the next step is launched
    logprobs: list[Packed] = field(default_factory=list)  # owners count the rows that drew
    prompt_logprobs: list[Packed] = field(default_factory=list)  # the owner is a slot
    pooled: Vectors | None = None  # what rows gave instead of tokens


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a plan, checked."""

    slots: Ints  # [R] int64
    counts: Ints  # [R] int64
    samples: Ints  # [R] bool
    starts: Ints  # [R] int64: tokens computed before
    given: Given | None  # what some of the tokens are instead of their ids

    @property
    def decodes(self) -> int:
        """The leading rows of one token."""
        several = self.counts != 1
        return int(np.argmax(several)) if several.any() else len(several)


@dataclass(frozen=True, slots=True)
class _Held:
    """A deferred step that has not drawn yet."""

    step: int
    hidden: Tensor  # [R that draw, hidden] dtype, device
    rows: StepRows
    prompt_logprobs: list[Packed]


class Runner:
    """Owns a model, its KV cache and the slots of one rank."""

    def __init__(
        self,
        model: Model,
        kernels: Kernels,
        limits: Limits,
        groups: tuple[KvGroupAlloc, ...],
        device: str,
        graph_sizes: tuple[int, ...] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Allocate everything that lasts and record steps.

        `progress`: where steps say how far they are; by default one of its own.
        `graph_sizes`: rows and tokens of the steps to record, ascending; None: tables that fit the limits; (): none.
        Raises ProtocolError if `groups` does not fit the model.
        """
        self.progress = progress or Progress()
        self._model = model
        self._kernels = kernels
        self._device = device
        self._groups = groups
        self._heads = {group.group: model.kv_heads(group.layers[0]) for group in groups}
        self._caches = allocate_caches(groups, model, kernels.attention, device)
        self._slots = Slots(limits.max_num_seqs, limits.max_model_len, kernels.state, device)
        self._tables = BlockTables(groups, limits.max_num_seqs, limits.max_model_len, kernels.state, device)
        self._given = GivenPrompts(device)
        self._held: _Held | None = None
        self._sampler = Sampler(limits.max_num_seqs, kernels.sample, kernels.logits, device, limits.logprobs_mode)
        self._graphs: DecodeGraphs | None = None
        self._forwards: ForwardGraphs | None = None
        self._recorded = (limits, kernels.replay.most_rows if kernels.replay is not None else 0, graph_sizes)
        if kernels.replay is not None and graph_sizes != ():
            self._record(*self._recorded)

    @property
    def cache_bytes(self) -> int:
        """The size of the KV cache."""
        return cache_bytes(self._caches)

    def use(self, model: Model) -> None:
        """Run another model of the same config from the next step on. No step may be under way."""
        self._model = model
        if self._graphs is not None:
            self._graphs = self._forwards = None  # they hold the memory of the one before
            self._record(*self._recorded)

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        self._slots.check()

    @torch.inference_mode()
    def _record(self, limits: Limits, most_rows: int, sizes: tuple[int, ...] | None) -> None:
        parts = StepParts(
            self._model,
            self._kernels,
            self._groups,
            self._heads,
            self._caches,
            self._slots,
            self._tables,
            self.progress,
            self._device,
        )
        rows = sizes or decode_sizes(min(limits.max_num_seqs, most_rows))
        self._graphs = DecodeGraphs(parts, rows, limits.max_model_len)
        tokens = sizes or forward_sizes(limits.max_num_batched_tokens)
        self._forwards = ForwardGraphs(parts, tokens, limits.max_num_seqs)

    @torch.inference_mode()
    def step(self, plan: StepPlan) -> Drawn | None:
        """Carry out one plan; a deferred one, up to its logits: then None. Raises ProtocolError if it does not fit."""
        self._apply(plan)
        rows = self._rows(plan)
        if not len(rows.slots):
            for _, layer in self._model.walk():
                layer.idle()
            return self._none()
        drawn = None if plan.deferred else self._replay(rows)
        if drawn is not None:
            return drawn
        hidden, prompt_logprobs = self._forward(rows)  # hidden: [R that draw, hidden] dtype
        if plan.deferred:
            self._held = _Held(plan.step, hidden, rows, prompt_logprobs)
            return None
        drawn = self._sample(hidden, rows)
        return replace(drawn, prompt_logprobs=prompt_logprobs) if prompt_logprobs else drawn

    @torch.inference_mode()
    def sample(self, plan: SamplePlan) -> Drawn:
        """Let the rows of the deferred plan draw. Raises ProtocolError if this is not its SamplePlan."""
        held, self._held = self._held, None
        if held is None or held.step != plan.step:
            raise ProtocolError(f"masks of step {plan.step} came, deferred is step {held.step if held else None}")
        return replace(self._sample(held.hidden, held.rows, plan), prompt_logprobs=held.prompt_logprobs)

    def _forward(self, rows: StepRows) -> tuple[Tensor, list[Packed]]:
        """Compute the step's tokens; return the hidden states of the rows that draw, and what prompts want to know.

        Where none does, and none wants to know, the hidden state is that of any token.
        """
        which = np.flatnonzero(rows.samples)
        reads = any(self._sampler.prompt_logprobs(slot) is not None for slot in rows.slots.tolist())
        hidden = None
        if self._forwards is not None and rows.given is None:
            hidden = self._forwards.replay(rows.slots, rows.starts, rows.counts, rows.decodes)
        if hidden is None and not reads:
            # The last layer computes no more tokens than are asked for.
            ids, batch = self._prepare(rows)
            if len(which) < len(ids):
                batch = replace(batch, ending=self._ending(rows, which if len(which) else np.zeros(1, dtype=np.int64)))
            hidden = self._model.forward(ids, batch)
            self._slots.advance(rows.slots, rows.counts)
            return hidden, []
        if hidden is None:
            hidden = self._model.forward(*self._prepare(rows))
        self._slots.advance(rows.slots, rows.counts)
        last = self._move(np.cumsum(rows.counts)[which] - 1)
        return hidden.index_select(0, last), self._prompt_logprobs(hidden, rows)

    def _apply(self, plan: StepPlan) -> None:
        released = _ints(plan.released).tolist()
        self._slots.release(released)
        self._given.release(released)
        for row in plan.new:
            self._slots.take(row)
            self._given.take(row)
            self._sampler.take(row.slot, row.sampling, row.prompt_len, named=row.embeds is None)
        for diff in plan.blocks:
            self._tables.stage(diff)
        self._slots.apply()
        self._tables.apply()

    def _rows(self, plan: StepPlan) -> StepRows:
        slots, counts = _ints(plan.rows).astype(np.int64), _ints(plan.counts).astype(np.int64)
        samples = np.frombuffer(plan.samples, dtype=np.uint8).astype(np.bool_)
        if any(plan.drafts):
            raise ProtocolError(f"step {plan.step}: drafts are not supported by this worker")
        if not len(slots) == len(counts) == len(samples):
            raise ProtocolError(f"step {plan.step}: {len(slots)} rows, {len(counts)} counts, {len(samples)} samples")
        if len(np.unique(slots)) != len(slots):
            raise ProtocolError(f"step {plan.step}: a slot stands twice in {slots.tolist()}")
        if len(slots) and not (slots.min() >= 0 and slots.max() < len(self._slots.taken)):
            raise ProtocolError(f"step {plan.step}: slots {slots.tolist()} are not all below {len(self._slots.taken)}")
        starts = self._slots.computed[slots]
        ends, length = starts + counts, self._slots.length[slots]
        fits = self._slots.taken[slots] & (counts > 0) & (ends <= length) & (samples == (ends == length))
        if not fits.all():
            at = int(np.argmin(fits))
            raise ProtocolError(
                f"step {plan.step}: {counts[at]} tokens from {starts[at]} of {length[at]}, samples {samples[at]}, "
                f"do not fit slot {slots[at]}"
            )
        return StepRows(slots, counts, samples, starts, self._given.of(slots, starts, counts))

    def _replay(self, rows: StepRows) -> Drawn | None:
        """Run a step as a recorded one, if it is a decode step that was recorded."""
        slots = rows.slots
        if self._graphs is None or rows.given is not None:
            return None
        if not (rows.samples.all() and (rows.counts == 1).all() and self._sampler.plain(slots)):
            return None
        temperatures = self._sampler.temperatures(slots)
        key = self._graphs.find(len(slots), int(rows.starts.max()) + 1)
        if key is None:
            return None
        tokens = self._graphs.replay(key, slots, self._sampler.seeds(slots), temperatures)
        self._slots.advance(slots, rows.counts)
        self._slots.appended(slots)
        return Drawn(slots.astype(np.int32), self._slots.generation[slots], tokens)

    def _prepare(self, rows: StepRows) -> tuple[Tensor, ForwardBatch]:
        begins = np.cumsum(rows.counts) - rows.counts  # [R] each row's first token in the step
        row_of = np.repeat(np.arange(len(rows.slots)), rows.counts)  # [T]
        positions = np.arange(len(row_of)) + (rows.starts - begins)[row_of]  # [T]
        slots, row_of_dev, positions_dev = self._move(rows.slots), self._move(row_of), self._move(positions)
        ids = self._kernels.state.gather_ids(self._slots.tokens, slots[row_of_dev], positions_dev)
        attention: dict[int, PreparedAttention] = {}
        for group in self._groups:
            where = (slots, row_of_dev, positions_dev)
            prepared = self._attention(group, rows.starts, rows.counts, rows.decodes, where)
            attention |= dict.fromkeys(group.layers, prepared)
        by_layer = tuple(attention[layer] for layer in range(len(self._caches)))
        return ids, ForwardBatch(positions_dev, by_layer, self._caches, self.progress, given=rows.given)

    def _attention(
        self, group: KvGroupAlloc, starts: Ints, counts: Ints, decodes: int, where: tuple[Tensor, Tensor, Tensor]
    ) -> PreparedAttention:
        """Return the attention of a step in one KV group.

        `where`: the slots of the rows [R], and of the tokens the rows [T] and the positions [T], all int64, device.
        """
        slots, row_of, positions = where
        step = PagedStep(
            starts=starts.tolist(),
            counts=counts.tolist(),
            num_decodes=decodes,
            block_tokens=group.block_tokens,
            tables=self._tables.rows(group.group, slots, int((starts + counts).max())),
            rows=row_of,
            positions=positions,
        )
        return self._kernels.attention.prepare(step, self._heads[group.group])

    def _ending(self, rows: StepRows, which: Ints) -> Ending:
        """Return the last tokens of the rows `which`, attended to as rows of one token."""
        last = np.cumsum(rows.counts)[which] - 1
        starts = (rows.starts + rows.counts)[which] - 1
        group = next(group for group in self._groups if len(self._caches) - 1 in group.layers)
        where = (self._move(rows.slots[which]), self._move(np.arange(len(which))), self._move(starts))
        ones = np.ones_like(starts)
        return Ending(self._move(last), self._attention(group, starts, ones, len(which), where))

    def _sample(self, hidden: Tensor, rows: StepRows, masks: SamplePlan | None = None) -> Drawn:  # [R, hidden] dtype
        which = np.flatnonzero(rows.samples)
        if not len(which):
            return self._none()
        slots = rows.slots[which]
        logits = self._model.logits(hidden)
        if masks is not None:
            mask_logits(logits, slots, masks, self._kernels.mask, self._device)
        places = self._slots.length[slots]  # the index that each drawn token will have
        draws = self._sampler.draw(logits, slots, places, self._slots.tokens)
        self._slots.append(slots, self._move(slots), draws.tokens)
        return Drawn(slots.astype(np.int32), self._slots.generation[slots], draws.tokens, draws.logprobs)

    def _prompt_logprobs(self, hidden: Tensor, rows: StepRows) -> list[Packed]:  # [T, hidden] dtype
        """Return, for slots that want them, the log probabilities of the prompt tokens that follow those computed."""
        packed, begin = [], 0
        for slot, start, count in zip(rows.slots.tolist(), rows.starts.tolist(), rows.counts.tolist(), strict=True):
            wanted = self._sampler.prompt_logprobs(slot)
            last = min(start + count, self._slots.prompt[slot] - 1)
            if wanted is not None and start < last:
                mine = hidden[begin : begin + last - start]
                following = self._slots.tokens[slot, start + 1 : last + 1].to(torch.int64)
                normalize = self._sampler.normalize
                ops = self._kernels.logits
                packed.append(of_prompt(self._model.logits, mine, following, wanted, slot, normalize, ops))
            begin += count
        return packed

    def generation(self, slot: int) -> int:
        """Return the generation of a slot's owner."""
        return int(self._slots.generation[slot])

    def _none(self) -> Drawn:
        empty = np.zeros(0, dtype=np.int32)
        return Drawn(empty, empty, torch.zeros(0, dtype=torch.int64))

    def _move(self, values: Ints) -> Tensor:  # the same shape and dtype, on the device
        return upload(values, self._device)


def _ints(data: bytes) -> Ints:
    return np.frombuffer(data, dtype="<i4")
