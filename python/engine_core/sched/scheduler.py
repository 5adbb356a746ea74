"""The scheduler: what runs next, and what becomes of results."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from octavo.engine_core.news import without_prompt
from octavo.engine_core.request import Request, Status
from octavo.engine_core.sched.admission import admit_waiting
from octavo.engine_core.sched.draft import StepDraft
from octavo.engine_core.sched.fairness import top_up
from octavo.engine_core.sched.masking import deferred, sample_plan
from octavo.engine_core.sched.quarantine import MAX_CRASHES_ALONE, note_crash, on_trial, run_suspect
from octavo.engine_core.sched.running import continue_running
from octavo.engine_core.sched.state import InFlight, SchedState
from octavo.engine_core.sched.steady import complete_steady, settle
from octavo.errors import ProtocolError, RequestError
from octavo.wire.frontend import Finish
from octavo.wire.worker import BlockDiff, NewRow, StepPlan

if TYPE_CHECKING:
    from octavo.engine_core.cache.coordinator import KvCache
    from octavo.engine_core.grammar.protocol import Grammars, Matcher
    from octavo.engine_core.sched.budget import SchedLimits
    from octavo.engine_core.sched.counters import Counters
    from octavo.engine_core.sched.draft import Row
    from octavo.wire.frontend import AddRequest, Delta
    from octavo.wire.worker import SamplePlan

__all__ = ["Outcome", "Scheduler"]


#: The count of a steady row, packed.
_ONE = array("i", [1]).tobytes()


class Outcome(NamedTuple):
    """What became of a row's result."""

    took: int  # tokens that were appended
    finish: Finish | None  # why the request ended, if it did


class Scheduler:
    """Hands out tokens until, for each request, `num_computed` meets the number of its tokens. That is the one rule.

    Chunked prefill, prefix hits, decode, drafts, preemption and recovery are all that rule. Plans go to the workers in
    the order in which `schedule` returns them, and results come back in the same order.
    """

    def __init__(self, limits: SchedLimits, cache: KvCache) -> None:
        self._state = SchedState(limits, cache)
        self._requests: dict[int, Request] = {}

    @property
    def counters(self) -> Counters:
        """Totals since the start."""
        return self._state.counters

    @property
    def cache(self) -> KvCache:
        """The KV cache."""
        return self._state.cache

    @property
    def num_running(self) -> int:
        """Requests that own a slot."""
        return len(self._state.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._state.waiting)

    @property
    def num_deferred(self) -> int:
        """Of these, requests that wait for blocks which another one computes."""
        return min(self._state.deferred, len(self._state.waiting))

    @property
    def num_in_flight(self) -> int:
        """Plans without a result."""
        return len(self._state.in_flight)

    @property
    def on_trial(self) -> bool:
        """Whether all that is in flight is one request that may have crashed the workers before."""
        return on_trial(self._state)

    def get(self, request_id: int) -> Request | None:
        """Return a request that is not finished."""
        return self._requests.get(request_id)

    def requests(self) -> list[Request]:
        """Return all requests that are not finished."""
        return list(self._requests.values())

    def add(self, message: AddRequest, matcher: Matcher | None = None) -> Finish | None:
        """Queue a request, in place of an earlier attempt. Returns why, if it has nothing left to do and is not queued.

        `matcher` is at the beginning of the request's grammar, if it has one. A lower or equal attempt is ignored.
        Raises RequestError for a request that can never run.
        """
        known = self._requests.get(message.id)
        if known is not None:
            if message.attempt <= known.attempt:
                return None
            self.finish(known)
        cache, limits = self._state.cache, self._state.limits
        self._refuse_crowd(message)
        request = Request(message, cache.open_chains(message.domain), limits, matcher)
        if not cache.fits_ever(len(request.tokens) + (message.pooling is None)):
            pools = ", ".join(str(group.pool.capacity * group.block_tokens) for group in cache.groups)
            raise RequestError(
                f"the request has {len(request.tokens)} tokens, the KV pools hold {pools}; shorten the prompt or raise"
                " --kv-cache-memory-bytes",
                "too_long",
                "prompt",
            )
        done = request.finished_already()
        if done is None:
            self._requests[request.id] = request
            self._state.waiting.add(request)
        return done

    def _refuse_crowd(self, message: AddRequest) -> None:
        """Raise RequestError for a new request beyond --max-num-waiting; one that is sent again has its place."""
        most, state = self._state.limits.max_num_waiting, self._state
        if most is None or message.attempt > 1 or len(state.waiting) - state.slots.num_free < most:
            return
        raise RequestError(
            f"{len(state.waiting)} requests wait, {most} may (--max-num-waiting); try again", "overloaded"
        )

    def finish(self, request: Request) -> None:
        """Take a request out and give back what it holds; its results in flight will be dropped."""
        self._state.finish(request)
        del self._requests[request.id]

    def reset_prefix_cache(self, *, running: bool) -> None:
        """Let nothing that was computed so far be found any more. With `running`, running requests start over."""
        state = self._state
        if running:
            for request in state.running.snapshot():
                state.requeue(request)
                state.counters.preemptions += 1
        state.cache.reset(request.tables for request in state.running if request.tables is not None)
        state.computing.clear()

    def use_weights(self, key: str) -> None:
        """Compute everything again under other weights. Nothing may be in flight."""
        self._requeue_all()
        cache = self._state.cache
        cache.reset([])
        cache.use_weights(key)
        for request in self._requests.values():
            request.chains = cache.open_chains(request.domain)

    def kv_lost(self) -> None:
        """Compute everything again: the workers forget all KV and all slots. Nothing may be in flight."""
        self._requeue_all()
        self._state.slots.forget()
        self._state.cache.lose()

    def _requeue_all(self) -> None:
        state = self._state
        if state.in_flight:
            raise ValueError(f"{len(state.in_flight)} plans are in flight")
        for request in state.running.snapshot():
            state.requeue(request)
        state.computing.clear()

    def take_started(self) -> list[Request]:
        """Return requests that have started for the first time, each once."""
        fresh, self._state.fresh = self._state.fresh, []
        return fresh

    def take_failed(self) -> list[tuple[Request, str]]:
        """Return requests that cannot go on, finished already, and what to tell their clients; each once."""
        failed, self._state.failed = self._state.failed, []
        for request, _ in failed:
            self._requests.pop(request.id, None)
        return failed

    def schedule(self) -> StepPlan | None:
        """Return the next plan, which is in flight from then on, or None if nothing can run now."""
        state = self._state
        if len(state.in_flight) >= state.limits.window or state.unmasked is not None:
            return None
        draft = StepDraft(state.limits.max_num_batched_tokens)
        if not run_suspect(state, draft):
            continue_running(state, draft, state.running.snapshot())
            admit_waiting(state, draft)
            top_up(state, draft)
        return self._seal(draft) if len(draft) else None

    def idle_plan(self) -> StepPlan | None:
        """Return a plan without rows, in flight from then on; None while any other is in flight."""
        return None if self._state.in_flight else self._seal(StepDraft(0))

    def sample_plan(self, grammars: Grammars) -> SamplePlan | None:
        """Return the masks that the last plan waits for, if they can be known now. Send them before any other plan."""
        return sample_plan(self._state, grammars)

    def take_flight(self, step: int) -> InFlight:
        """Return the oldest plan in flight, whose result has come.

        Raises ProtocolError if that is not the plan of `step`.
        """
        state = self._state
        if not state.in_flight or state.in_flight[0].step != step:
            expected = state.in_flight[0].step if state.in_flight else "none"
            raise ProtocolError(f"a result of step {step} came, the next one in flight is {expected}")
        state.counters.steps += 1
        return state.in_flight.popleft()

    def complete_steady(self, flight: InFlight, packed: bytes) -> list[Delta]:
        """Apply the results of a plan's steady rows, one token each; return what is new for the frontend."""
        deltas = complete_steady(flight.steady, packed, self._wake)
        self._state.counters.generated_tokens += len(deltas)
        return deltas

    def complete(self, row: Row, sampled: array[int]) -> Outcome | None:
        """Apply one row's result.

        Returns None for a late result: the request ended, or lost its slot, while the row was in flight.
        """
        request = row.request
        if request.status is not Status.RUNNING or request.generation != row.generation or request.slot != row.slot:
            return None
        before = len(request.tokens)
        finish = request.completed(row.tokens, row.drafts, row.samples, sampled)
        took = len(request.tokens) - before
        self._state.counters.generated_tokens += took
        self._advance(request)
        if finish is not None:
            self.finish(request)
        elif row.samples:
            self._state.prefilled(request)
            settle(self._state, request)
        return Outcome(took, finish)

    def _wake(self, request: Request, token: int) -> Finish | None:
        """Do what a steady request has come to after drawing `token`: its end, or full blocks."""
        self._advance(request)
        if token in request.stop_ids:
            finish = Finish("stop", token)
        elif len(request.tokens) >= request.limit:
            finish = Finish("length")
        else:
            settle(self._state, request)
            return None
        self.finish(request)
        return finish

    def _advance(self, request: Request) -> None:
        assert request.tables is not None
        if request.num_computed >= request.tables.next_event:
            self.cache.advance(request.tables, request.chains, request.tokens, request.num_computed)

    def step_ended(self, step: int) -> None:
        """Release the blocks that waited for this step, after all of its rows are complete."""
        self.cache.step_ended(step)

    def crashed(self, *, innocent: bool = False) -> None:
        """Put everything back to waiting: the workers are gone, with all KV and all slots.

        `innocent`: nothing that ran here can be the cause.
        """
        state = self._state
        if not innocent:
            note_crash(state)
        state.in_flight.clear()
        state.unmasked = None
        for request in state.running.snapshot():
            state.requeue(request)
        state.slots.forget()
        state.cache.lose()
        for request in list(state.suspects.values()):
            if request.crashes_alone >= MAX_CRASHES_ALONE:
                state.fail(request, f"the engine crashed {request.crashes_alone} times on this request alone")

    def check(self) -> None:
        """Raise AssertionError unless all parts agree with each other."""
        state = self._state
        live = [request for request in self._requests.values() if request.status is not Status.FINISHED]
        assert len(live) == len(state.waiting) + len(state.running)
        for request in live:
            request.check()
            queue = state.running if request.status is Status.RUNNING else state.waiting
            assert request in queue, request
        slots = [request.slot for request in state.running]
        assert len(set(slots)) == len(slots) == state.limits.max_num_seqs - state.slots.num_free
        state.cache.check(r.tables for r in state.running if r.tables is not None)
        if not state.running:
            assert len(state.computing) == 0
        assert set(state.prefilling) <= {request.id for request in state.running}

    def _seal(self, draft: StepDraft) -> StepPlan:
        state = self._state
        state.step += 1
        rows, steady = draft.ordered(), draft.steady
        blocks: list[BlockDiff] = []
        for row in rows:
            row.request.scheduled(row.tokens, row.drafts, row.samples)
            tables = row.request.tables
            if tables is not None and tables.dirty:
                diffs = tables.take_diffs()
                blocks += [BlockDiff(group, row.slot, start, ids) for group, start, ids in diffs]
            settle(state, row.request)
        drawing = [*steady, *(row for row in rows if row.samples)]
        slots = array("i", [row[1] for row in drawing])
        generations = array("i", [row[2] for row in drawing])
        flight = InFlight(state.step, steady, rows, slots.tobytes(), generations.tobytes())
        state.in_flight.append(flight)
        state.unmasked = flight if deferred(rows) else None
        if drawing or rows:
            _count(state, steady, rows)
        drafts = bytes([row.drafts for row in rows]) if any(row.drafts for row in rows) else b""
        return StepPlan(
            step=state.step,
            new=tuple(_new_row(request) for request in draft.admitted if request.tables is not None),
            released=state.slots.take_released(),
            blocks=tuple(blocks),
            rows=slots[: len(steady)].tobytes() + array("i", [row.slot for row in rows]).tobytes(),
            counts=_ONE * len(steady) + array("i", [row.tokens for row in rows]).tobytes(),
            samples=b"\x01" * len(steady) + bytes([row.samples for row in rows]),
            drafts=drafts and bytes(len(steady)) + drafts,
            deferred=state.unmasked is not None,
        )


def _count(state: SchedState, steady: list[Row], rows: list[Row]) -> None:
    """Count what a plan is made of."""
    counters = state.counters
    decode = len(steady)
    tokens = prefill = prefill_tokens = 0
    for row in rows:
        tokens += row.tokens
        if not (row.samples and row.tokens - row.drafts == 1):
            prefill += 1
            prefill_tokens += row.tokens
    counters.step_tokens.observe(decode + tokens)
    counters.decode_rows += decode + len(rows) - prefill
    counters.prefill_rows += prefill
    counters.decode_tokens += decode + tokens - prefill_tokens
    counters.prefill_tokens += prefill_tokens


def _new_row(request: Request) -> NewRow:
    return NewRow(
        slot=request.slot,
        generation=request.generation,
        tokens=request.tokens.tobytes(),
        prompt_len=request.prompt_len,
        computed=request.num_computed,
        sampling=request.sampling if request.reads_prompt else without_prompt(request.sampling),
        pooling=request.pooling,
        embeds=request.embeds,
    )
