"""A worker without torch whose next token is a function of all tokens before.

It keeps what a real one keeps, in blocks: a full group and a window group (token and prefix hash of each position) and
a state group (the running hash). Outputs come from what is read back through the block tables, so that a wrong
schedule, prefix hit, window, state, preemption or re-use of a block changes them, or raises FakeWorkerError at once.
"""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from octavo.engine_core.news import join
from octavo.engine_core.repetition import turns_in_circles
from octavo.errors import ModelError
from octavo.wire.frontend import Logprobs, SamplingParams
from octavo.wire.worker import (
    AllocateKv,
    Init,
    KvGroupAlloc,
    KvReady,
    KvSpec,
    KvTensor,
    NewRow,
    Ready,
    RowLogprobs,
    SamplePlan,
    StepPlan,
    StepResult,
)
from tests.engine.fake_extras import choose, fake_logprobs
from tests.engine.fake_grammar import VOCAB, FakeMatcher

__all__ = ["VOCAB", "FakeCrash", "FakeWorker", "FakeWorkerError", "fake_specs", "reference", "reference_logprobs"]

WINDOW = 5
_KV = (KvTensor("k", (2, 4), "float32"), KvTensor("v", (2, 4), "float32"))
_STATE = (KvTensor("state", (8,), "float32"),)
_START = 0x9E3779B97F4A7C15


class FakeWorkerError(Exception):
    """The plan or the content of the blocks is wrong: a fault of the engine core."""


class FakeCrash(Exception):
    """The worker crashes on purpose."""


def fake_specs() -> tuple[KvSpec, ...]:
    """Return the layers' specs: two full layers, one window, one state, and one that shares."""
    return (
        KvSpec(0, "full", _KV),
        KvSpec(1, "window", _KV, window=WINDOW),
        KvSpec(2, "state", _STATE),
        KvSpec(3, "full", _KV),
        KvSpec(4, "full", _KV, shares=0),
    )


def fold(state: int, token: int) -> int:
    """Return the running hash after one more token."""
    digest = hashlib.blake2b(state.to_bytes(8, "little") + token.to_bytes(4, "little"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _choose(
    full: int,
    window: int,
    state: int,
    sampling: SamplingParams,
    tokens: list[int],
    prompt_len: int,
    allowed: list[int] | None = None,
) -> int:
    salt = sampling.seed if sampling.temperature > 0 else 0
    drawn = fold(full ^ window ^ (state * 3 & (2**64 - 1)), salt % 2**31)
    if allowed is not None:
        return allowed[drawn % len(allowed)]
    return choose(drawn, tokens, prompt_len, sampling, VOCAB)


def _fold_all(tokens: list[int]) -> int:
    state = _START
    for token in tokens:
        state = fold(state, token)
    return state


def reference(
    prompt: list[int], sampling: SamplingParams, max_model_len: int, grammar: FakeMatcher | None = None
) -> tuple[list[int], str]:
    """Return what one request yields when it is evaluated plainly, one token after the other, and why it ends."""
    tokens, limit = list(prompt), min(len(prompt) + sampling.max_tokens, max_model_len)
    state = _fold_all(tokens)
    while len(tokens) < limit:
        allowed = None if grammar is None else grammar.allowed()
        token = _choose(state, _fold_all(tokens[-WINDOW:]), state, sampling, tokens, len(prompt), allowed)
        tokens.append(token)
        state = fold(state, token)
        complete = grammar is not None and grammar.accept(token)
        if complete or _stops(token, len(tokens) - len(prompt), sampling):
            return tokens[len(prompt) :], "stop"
        rule = sampling.extras and sampling.extras.repetition
        if rule and len(tokens) < limit and turns_in_circles(tokens, len(prompt), rule):
            return tokens[len(prompt) :], "repetition"
    return tokens[len(prompt) :], "length"


def _stops(token: int, emitted: int, sampling: SamplingParams) -> bool:
    return token in sampling.stop_token_ids and not (sampling.extras and emitted <= sampling.extras.min_tokens)


def reference_logprobs(tokens: list[int], start: int, count: int | None) -> Logprobs | None:
    """Return the log probabilities of the tokens from `start` on; None where none are asked for."""
    if count is None:
        return None
    state = _fold_all(tokens[:start])
    rows = []
    for token in tokens[start:]:
        rows.append(fake_logprobs(state, token, count, VOCAB))
        state = fold(state, token)
    return join(rows)


@dataclass
class _Group:
    alloc: KvGroupAlloc
    kind: str
    entries: list[list[tuple[int, int, int] | None]]  # full, window: [block][offset] -> (position, token, prefix hash)
    states: list[tuple[int, int] | None]  # state: [block] -> (tokens, running hash)


@dataclass
class _Slot:
    generation: int
    tokens: list[int]
    computed: int
    sampling: SamplingParams
    prompt_len: int
    prefix: list[int]  # prefix[i]: running hash of the first i tokens: what must be found in the blocks
    tables: list[list[int]] = field(default_factory=list)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.prefix.append(fold(self.prefix[-1], token))


class FakeWorker:
    """Implements `octavo.workers.body.WorkerBody`.

    `Init.model` may carry settings: "fake?delay_ms=5&poison=13&model_error=1": the time of a step, the token on whose
    row the process dies, an error at loading.
    """

    def __init__(self) -> None:
        self._rank = 0
        self._settings: dict[str, str] = {}
        self._groups: list[_Group] = []
        self._slots: dict[int, _Slot] = {}
        self._generations: dict[int, int] = {}
        self._phase, self._step = "loading", 0
        self._deferred: StepPlan | None = None
        self.computed_tokens = 0  # in all rows, rejected drafts not counted

    def init(self, message: Init) -> Ready:
        """Read the settings from the model's name."""
        self._rank = message.rank
        self._settings = dict(parse_qsl(urlsplit(message.model).query))
        if "model_error" in self._settings:
            raise ModelError("the fake model cannot be loaded: it was told so; ask for another")
        self._phase = "idle"
        return Ready(self._rank, VOCAB, fake_specs(), 1 << 40, 0, 0)

    def allocate(self, message: AllocateKv) -> KvReady:
        """Start with blocks that hold nothing: reading one raises."""
        kinds = {spec.layer: spec.kind for spec in fake_specs()}
        for alloc in message.groups:
            entries: list[list[tuple[int, int, int] | None]]
            entries = [[None] * alloc.block_tokens for _ in range(alloc.num_blocks)]
            self._groups.append(_Group(alloc, kinds[alloc.layers[0]], entries, [None] * alloc.num_blocks))
        return KvReady(self._rank, 0)

    def progress(self) -> tuple[str, int, int]:
        """Return (phase, step, layer)."""
        return self._phase, self._step, 0

    def step(self, plan: StepPlan) -> StepResult | None:
        """Run a plan: apply its diffs, compute its rows in order. A deferred one waits for its masks."""
        if self._deferred is not None:
            raise FakeWorkerError(f"plan {plan.step} came before the masks of {self._deferred.step}")
        if plan.step != self._step + 1 and self._step:
            raise FakeWorkerError(f"plan {plan.step} follows {self._step}")
        self._phase, self._step = "step", plan.step
        time.sleep(float(self._settings.get("delay_ms", "0")) / 1000)
        self._apply(plan)
        if plan.deferred:
            self._deferred = plan
            return None
        return self._compute_rows(plan, {})

    def sample(self, plan: SamplePlan) -> StepResult | None:
        """Run the plan that waits for these masks."""
        deferred, self._deferred = self._deferred, None
        if deferred is None or deferred.step != plan.step:
            raise FakeWorkerError(f"masks of {plan.step} came, {deferred and deferred.step} is deferred")
        slots, size = array("i", plan.slots), 4 * -(-VOCAB // 32)
        if len(plan.masks) != size * len(slots):
            raise FakeWorkerError(f"{len(plan.masks)} bytes of masks for {len(slots)} slots")
        bits = [int.from_bytes(plan.masks[size * i : size * (i + 1)], "little") for i in range(len(slots))]
        allowed = [[token for token in range(VOCAB) if mask >> token & 1] for mask in bits]
        return self._compute_rows(deferred, dict(zip(slots, allowed, strict=True)))

    def _compute_rows(self, plan: StepPlan, allowed: dict[int, list[int]]) -> StepResult | None:
        rows, counts = array("i", plan.rows), array("i", plan.counts)
        drafts = plan.drafts or bytes(len(rows))
        if not len(rows) == len(counts) == len(plan.samples) == len(drafts) or len(set(rows)) != len(rows):
            raise FakeWorkerError(f"plan {plan.step} has rows {list(rows)} and {len(counts)} counts")
        slots, generations, lengths, tokens = array("i"), array("i"), array("i"), array("i")
        told: list[RowLogprobs] = []
        prompts: list[RowLogprobs] = []
        for slot, count, samples, k in zip(rows, counts, plan.samples, drafts, strict=True):
            before = self._slots[slot].computed if slot in self._slots else 0
            sampled = self._row(slot, count, bool(samples), k, allowed.get(slot))
            self._tell(self._slots[slot], slot, before, len(sampled), told, prompts)
            if samples:
                slots.append(slot)
                generations.append(self._slots[slot].generation)
                lengths.append(len(sampled))
                tokens.extend(sampled)
        self._phase = "idle"
        if self._rank != 0:
            return None
        parts = (part.tobytes() for part in (slots, generations, lengths, tokens))
        return StepResult(plan.step, *parts, 0, tuple(told), tuple(prompts))

    def _tell(
        self, slot: _Slot, number: int, before: int, drawn: int, told: list[RowLogprobs], prompts: list[RowLogprobs]
    ) -> None:
        """Add the log probabilities that a row's request asked for."""
        extras = slot.sampling.extras
        if extras is None:
            return
        values = reference_logprobs(slot.tokens, len(slot.tokens) - drawn, extras.logprobs) if drawn else None
        if values is not None:
            told.append(RowLogprobs(number, slot.generation, values))
        last = min(slot.computed, slot.prompt_len - 1)
        if extras.prompt_logprobs is not None and before < last:
            values = reference_logprobs(slot.tokens[: last + 1], before + 1, extras.prompt_logprobs)
            assert values is not None
            prompts.append(RowLogprobs(number, slot.generation, values))

    def _apply(self, plan: StepPlan) -> None:
        for slot in array("i", plan.released):
            if self._slots.pop(slot, None) is None:
                raise FakeWorkerError(f"slot {slot} is released and was not taken")
        for row in plan.new:
            self._take(row)
        for diff in plan.blocks:
            table = self._slots[diff.slot].tables[diff.group]
            ids = array("i", diff.ids)
            if diff.start > len(table) or not all(0 <= i < self._groups[diff.group].alloc.num_blocks for i in ids):
                raise FakeWorkerError(f"block diff {diff} leaves a hole or has ids that do not exist")
            table[diff.start :] = ids

    def _take(self, row: NewRow) -> None:
        if row.slot in self._slots or row.generation <= self._generations.get(row.slot, 0):
            raise FakeWorkerError(f"slot {row.slot} is taken, or generation {row.generation} is not a later one")
        self._generations[row.slot] = row.generation
        tokens = list(array("i", row.tokens))
        if self._settings.get("poison") in [str(token) for token in tokens]:
            self._crash()
        prefix = [_START]
        for token in tokens:
            prefix.append(fold(prefix[-1], token))
        tables: list[list[int]] = [[] for _ in self._groups]
        self._slots[row.slot] = _Slot(
            row.generation, tokens, row.computed, row.sampling, row.prompt_len, prefix, tables
        )

    def _crash(self) -> None:
        if "in_process" in self._settings:
            raise FakeCrash("poison")
        os._exit(77)

    def _row(self, number: int, count: int, samples: bool, drafts: int, allowed: list[int] | None) -> list[int]:
        slot = self._slots.get(number)
        if slot is None:
            raise FakeWorkerError(f"row {number} is not a slot in use")
        known = len(slot.tokens) - slot.computed
        if not 0 < count - drafts <= known or samples != (count - drafts == known) or (drafts and not samples):
            raise FakeWorkerError(
                f"row {number}: count {count}, drafts {drafts}, samples {samples}, {known} to compute"
            )
        state = self._read_state(slot)
        for position in range(slot.computed, slot.computed + count - drafts):
            state = self._compute(slot, position, slot.tokens[position], state)
        slot.computed += count - drafts
        sampled: list[int] = []
        if samples:
            sampled, state = self._sample(slot, drafts, state, allowed)
        self._write_state(slot, slot.computed, state, last=True)
        self.computed_tokens += count - drafts + max(0, len(sampled) - 1)
        return sampled

    def _sample(self, slot: _Slot, drafts: int, state: int, allowed: list[int] | None) -> tuple[list[int], int]:
        """Draw a token, and one more for each draft that equals the token drawn before it."""
        proposals = self._propose(slot, drafts)
        sampled = []
        for place in range(drafts + 1):
            full, window = self._read_full(slot), self._read_window(slot, slot.computed - 1)
            token = _choose(full, window, state, slot.sampling, slot.tokens, slot.prompt_len, allowed)
            sampled.append(token)
            slot.append(token)
            if place == drafts or proposals[place] != token:
                self._write_rejected(slot, proposals[place:])
                break
            state = self._compute(slot, slot.computed, token, state)
            slot.computed += 1
        return sampled, state

    def _propose(self, slot: _Slot, drafts: int) -> list[int]:
        """Return drafts of which about two in three are right."""
        tokens, proposals = list(slot.tokens), []
        for _ in range(drafts):
            state = _fold_all(tokens)
            token = _choose(state, _fold_all(tokens[-WINDOW:]), state, slot.sampling, tokens, slot.prompt_len)
            proposals.append(token if state % 3 else (token + 1) % VOCAB)
            tokens.append(token)
        return proposals

    def _compute(self, slot: _Slot, position: int, token: int, state: int) -> int:
        """Write the KV of one token, check what it sees, return the state after it."""
        self._write(slot, position, token, slot.prefix[position])
        self._read_window(slot, position)
        state = fold(state, token)
        self._write_state(slot, position + 1, state, last=False)
        return state

    def _write_rejected(self, slot: _Slot, drafts: list[int]) -> None:
        """Write the KV of drafts that were not accepted, as a real step has done by then."""
        for place, token in enumerate(drafts):
            self._write(slot, slot.computed + place, token, -1)

    def _write(self, slot: _Slot, position: int, token: int, prefix: int) -> None:
        for group, table in zip(self._groups, slot.tables, strict=True):
            if group.kind != "state":
                index, offset = divmod(position, group.alloc.block_tokens)
                block = table[index] if index < len(table) else 0
                if block == 0:
                    raise FakeWorkerError(f"position {position} has no block in group {group.alloc.group}")
                group.entries[block][offset] = (position, token, prefix)

    def _read(self, slot: _Slot, kind: str, first: int, last: int) -> list[int]:
        """Return the tokens at the positions from first to last, as the blocks hold them."""
        group, table = next(pair for pair in zip(self._groups, slot.tables, strict=True) if pair[0].kind == kind)
        tokens = []
        for position in range(first, last + 1):
            index, offset = divmod(position, group.alloc.block_tokens)
            entry = group.entries[table[index]][offset] if table[index] else None
            if entry is None or entry[0] != position or entry[2] != slot.prefix[position]:
                raise FakeWorkerError(f"{kind} group, position {position}: the block {table[index]} holds {entry}")
            tokens.append(entry[1])
        return tokens

    def _read_full(self, slot: _Slot) -> int:
        return _fold_all(self._read(slot, "full", 0, slot.computed - 1))

    def _read_window(self, slot: _Slot, position: int) -> int:
        return _fold_all(self._read(slot, "window", max(0, position - WINDOW + 1), position))

    def _read_state(self, slot: _Slot) -> int:
        if slot.computed == 0:
            return _START
        group, table = next(pair for pair in zip(self._groups, slot.tables, strict=True) if pair[0].kind == "state")
        block = table[(slot.computed - 1) // group.alloc.block_tokens]
        held = group.states[block] if block else None
        if held is None or held[0] != slot.computed or held[1] != slot.prefix[slot.computed]:
            raise FakeWorkerError(f"the state after {slot.computed} tokens: block {block} holds {held}")
        return held[1]

    def _write_state(self, slot: _Slot, computed: int, state: int, last: bool) -> None:
        group, table = next(pair for pair in zip(self._groups, slot.tables, strict=True) if pair[0].kind == "state")
        index = (computed - 1) // group.alloc.block_tokens
        block = table[index] if index < len(table) else 0
        if last and block == 0:
            raise FakeWorkerError(f"the state after {computed} tokens has no block")
        if block and (last or computed % group.alloc.block_tokens == 0):
            group.states[block] = (computed, state)
