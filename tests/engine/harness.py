"""A Core and a FakeWorker in one process, one step after the other."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field

from octavo.engine_core.cache.domain import Base
from octavo.engine_core.cache.group import Flight
from octavo.engine_core.cache.layout import build_cache, group_layers
from octavo.engine_core.core import Core
from octavo.engine_core.news import join
from octavo.engine_core.sched.budget import SchedLimits
from octavo.wire.frontend import AddRequest, Delta, Domain, Grammar, Logprobs, SamplingExtras, SamplingParams
from octavo.wire.worker import AllocateKv, Init, SamplePlan, StepPlan
from tests.engine.fake_grammar import FakeGrammars, FakeMatcher
from tests.engine.fake_worker import FakeCrash, FakeWorker, fake_specs, reference, reference_logprobs

__all__ = ["Harness", "Setup", "Transcript", "request"]


@dataclass(frozen=True)
class Setup:
    """One engine: limits, pools, block sizes of the kinds."""

    spare_blocks: tuple[int, int, int] = (150, 80, 80)  # full, window, state: beyond what one long request needs
    block_tokens: tuple[int, int, int] = (4, 3, 6)
    max_num_seqs: int = 8
    budget: int = 64
    max_model_len: int = 400
    window: int = 1
    num_drafts: int = 0
    caching: bool = True
    long_prefill: int = 0
    max_long: int = 1
    max_waiting: int | None = None
    whole_chunks: bool = False
    model: str = "fake?in_process=1"


@dataclass
class Transcript:
    """What the client of one request saw."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    message: str | None = None
    cached: int | None = None
    queued_us: int | None = None
    logprobs: list[Logprobs] = field(default_factory=list)
    prompt_logprobs: Logprobs | None = None
    deltas: list[int] = field(default_factory=list)  # tokens in each


def request(
    number: int,
    prompt: list[int],
    max_tokens: int = 8,
    *,
    stop: tuple[int, ...] = (),
    emitted: tuple[int, ...] = (),
    attempt: int = 1,
    priority: int = 0,
    temperature: float = 0.0,
    domain: Domain | None = None,
    grammar: str | None = None,
    extras: SamplingExtras | None = None,
) -> AddRequest:
    """Return a request; `number` is its id, arrival and seed."""
    return AddRequest(
        id=number,
        attempt=attempt,
        name=f"r{number}",
        prompt=array("i", prompt).tobytes(),
        emitted=array("i", emitted).tobytes(),
        sampling=SamplingParams(
            seed=number, max_tokens=max_tokens, temperature=temperature, stop_token_ids=stop, extras=extras
        ),
        arrival_us=number,
        priority=priority,
        domain=domain,
        grammar=None if grammar is None else Grammar("fake", grammar),
    )


class Harness:
    """Drives the core as the actor does, and checks after each move."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        kinds = dict(zip(("full", "window", "state"), setup.block_tokens, strict=True))
        flight = Flight(setup.window, setup.window * setup.budget, setup.window * (1 + setup.num_drafts))
        groups = group_layers(fake_specs(), kinds)
        base = Base("fake", "float32") if setup.caching else None
        align = setup.block_tokens[2]
        limits = SchedLimits(
            setup.max_num_seqs,
            setup.budget,
            setup.max_model_len,
            setup.window,
            setup.num_drafts,
            align,
            long_prefill_threshold=setup.long_prefill,
            max_long_prefills=setup.max_long,
            max_num_waiting=setup.max_waiting,
            whole_chunks=setup.whole_chunks,
            priorities=True,
        )
        alone = build_cache(groups, [setup.max_model_len] * len(groups), flight, base)
        needs = [group.resident_blocks(setup.max_model_len) for group in alone.groups]
        num_blocks = [1 + need + spare for need, spare in zip(needs, setup.spare_blocks, strict=True)]
        self.grammars = FakeGrammars()
        self.core = Core(limits, build_cache(groups, num_blocks, flight, base), self.grammars)
        self._alloc = AllocateKv(tuple(g.alloc(n) for g, n in zip(groups, num_blocks, strict=True)))
        self.plans: deque[StepPlan | SamplePlan] = deque()  # sent, not yet run: the worker's inbox
        self.computed_tokens = 0
        self.restarts = 0
        self.requests: dict[int, AddRequest] = {}
        self.seen: dict[int, Transcript] = {}
        self.finished: list[int] = []  # in the order of their ends
        self.start_worker()

    def start_worker(self) -> None:
        """Start a worker with empty blocks."""
        self.worker = FakeWorker()
        s = self.setup
        self.worker.init(Init(0, 1, "", s.model, "float32", "cpu", "auto", 0, s.max_model_len, 8, s.budget, 1))
        self.worker.allocate(self._alloc)

    def add(self, message: AddRequest) -> None:
        """Add a request as the frontend does."""
        self.requests[message.id] = message
        self.seen[message.id] = Transcript(list(array("i", message.emitted)))
        matcher = None if message.grammar is None else self.grammars.compile(message.grammar).start()
        delta = self.core.add(message, matcher)
        self._deliver([delta] if delta else [])

    def abort(self, number: int) -> None:
        """Abort a request; it may be finished."""
        self.core.abort([number])
        self.requests.pop(number, None)

    def send(self) -> bool:
        """Send one plan or the masks of one, if the core has any."""
        plan = self.core.sample_plan() or self.core.next_plan()
        self._deliver(self.core.take_failed())
        self.core.check()
        if plan is not None:
            self.plans.append(plan)
        return plan is not None

    def receive(self) -> None:
        """Run the oldest plan and give the core its result; a crash on purpose restarts the worker."""
        before = self.worker.computed_tokens
        try:
            plan = self.plans[0]
            result = self.worker.sample(plan) if isinstance(plan, SamplePlan) else self.worker.step(plan)
        except FakeCrash:
            self.crash()
            return
        self.plans.popleft()
        self.computed_tokens += self.worker.computed_tokens - before
        if result is None:
            assert isinstance(plan, StepPlan) and plan.deferred
            return
        self._deliver(self.core.result(result))
        self.core.check()

    def crash(self) -> None:
        """Lose the worker and all plans in flight; start another."""
        self.restarts += 1
        self.plans.clear()
        self.core.crashed()
        self._deliver(self.core.take_failed())
        self.core.check()
        self.start_worker()

    def step(self) -> bool:
        """Fill the window, then run one plan. Returns False when there is nothing to do."""
        while self.send():
            pass
        if not self.plans:
            return False
        self.receive()
        return True

    def run(self, max_steps: int = 5000) -> None:
        """Step until nothing is left."""
        for _ in range(max_steps):
            if not self.step():
                assert self.core.idle, "requests are left, and nothing is in flight"
                return
        raise AssertionError(f"not done after {max_steps} steps")

    def verify(self, number: int) -> None:
        """Compare what a request yielded with its plain evaluation."""
        message = self.requests[number]
        prompt = list(array("i", message.prompt))
        grammar = None if message.grammar is None else FakeMatcher.of(message.grammar)
        tokens, finish = reference(prompt, message.sampling, self.setup.max_model_len, grammar)
        seen = self.seen[number]
        assert (seen.tokens, seen.finish) == (tokens, finish), f"request {number}: {seen}"
        self._verify_logprobs(message, prompt, seen)

    def _verify_logprobs(self, message: AddRequest, prompt: list[int], seen: Transcript) -> None:
        extras, had = message.sampling.extras, len(message.emitted) // 4
        if extras is None or had == len(seen.tokens):
            assert not seen.logprobs and seen.prompt_logprobs is None
            return
        assert join(seen.logprobs) == reference_logprobs(prompt + seen.tokens, len(prompt) + had, extras.logprobs)
        of_prompt = None if had else reference_logprobs(prompt, 1, extras.prompt_logprobs)
        assert seen.prompt_logprobs == of_prompt

    def verify_all(self) -> None:
        """Verify all requests that were not aborted, and that everything was given back."""
        for number in self.requests:
            self.verify(number)
        self.verify_empty()

    def verify_empty(self) -> None:
        """Check that blocks and gauges are back at their start."""
        self.core.check()
        stats = self.core.stats(0)
        assert (stats.running, stats.waiting) == (0, 0)
        assert stats.free_blocks == stats.total_blocks

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            seen, message = self.seen[delta.id], self.requests[delta.id]
            assert seen.finish is None and delta.attempt == message.attempt
            assert delta.start == len(seen.tokens), f"{delta} does not follow {len(seen.tokens)} tokens"
            seen.tokens += array("i", delta.tokens)
            seen.deltas.append(len(delta.tokens) // 4)
            if delta.logprobs is not None:
                seen.logprobs.append(delta.logprobs)
            if delta.prompt_logprobs is not None:
                assert seen.prompt_logprobs is None, "told twice"
                seen.prompt_logprobs = delta.prompt_logprobs
            if delta.cached_tokens is not None:
                seen.cached = delta.cached_tokens
            if delta.queued_us is not None:
                assert seen.queued_us is None, "told once"
                seen.queued_us = delta.queued_us
            if delta.finish is not None:
                seen.finish, seen.message = delta.finish.reason, delta.finish.message
                self.finished.append(delta.id)
