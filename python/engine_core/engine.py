"""The engine core: one actor between the frontend and the workers."""

from __future__ import annotations

import gc
import logging
import math
import time
from array import array
from typing import TYPE_CHECKING, Protocol

import anyio
import msgspec

from octavo.actors.actor import Actor
from octavo.actors.errors import MailboxFull
from octavo.engine_core.cache.events import KvEventLog
from octavo.engine_core.control.desk import ControlDesk
from octavo.engine_core.control.model_state import ModelState
from octavo.engine_core.control.operation import Context
from octavo.engine_core.control.scheduling import LOST
from octavo.engine_core.core import Core, is_named
from octavo.engine_core.frontend import FrontendEvent, FrontendGone
from octavo.engine_core.grammar.desk import GrammarDesk, GrammarReady
from octavo.engine_core.grammar.native import NativeGrammars
from octavo.engine_core.kv_plan import plan_kv
from octavo.engine_core.outputs import end_delta
from octavo.engine_core.sched.budget import SchedLimits
from octavo.engine_core.window import plans_in_flight
from octavo.engine_core.worker_group import GroupAnswer, GroupDown, GroupEvent, GroupReady, GroupResult, GroupWaits
from octavo.errors import EngineError, ProtocolError, RequestError
from octavo.faults import Faults
from octavo.wire.frontend import AbortRequests, AddRequest, Control, EngineInfo, Finish
from octavo.wire.version import VERSION
from octavo.wire.waves import Broken, Meet, Rest, Start, ToMember
from octavo.wire.worker import ModelControl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.config import EngineConfig
    from octavo.engine_core.cache.events import KvEvent
    from octavo.engine_core.frontend import Frontend
    from octavo.engine_core.grammar.protocol import Grammars
    from octavo.engine_core.journal import Journal
    from octavo.engine_core.kv_plan import KvPlan
    from octavo.engine_core.waves.desk import WaveDesk
    from octavo.wire.worker import AllocateKv, Ready, SamplePlan, StepPlan, StepResult

__all__ = ["EngineCore", "EngineMessage", "Workers"]

_log = logging.getLogger("octavo.engine_core")

#: Stats go out no more often.
_STATS_INTERVAL_S = 0.5
#: Events of the frontend that wait for the engine; more wait in the link, whose credit bounds them.
_MAILBOX = 4096

EngineMessage = FrontendEvent | GroupEvent | GrammarReady | ToMember


class Workers(Protocol):
    """What the engine needs of its worker group."""

    @property
    def restarts(self) -> int:
        """How often the workers were started again."""
        ...

    def send(self, message: StepPlan | SamplePlan | ModelControl) -> None:
        """Send a plan or an operation to all ranks. Never waits."""
        ...


class EngineCore(Actor[EngineMessage]):
    """Take the frontend's requests, keep `window` plans in flight, tell the frontend what results bring.

    Handlers are synchronous between reading and writing their state. After each batch of messages the window is filled
    again, so that what arrived meanwhile is in the next plan.
    """

    def __init__(
        self,
        config: EngineConfig,
        frontend: Frontend,
        journal: Journal,
        *,
        window: int | None = 1,
        num_drafts: int = 0,
        on_ready: Callable[[], None] = lambda: None,
        on_shutdown: Callable[[], None] = lambda: None,
        grammars: Callable[[int], Grammars] | None = None,
        waves: WaveDesk | None = None,
    ) -> None:
        """Keep the arguments.

        window: plans in flight; None: as many as suit the weights.
        journal: what was done to the model; older weights are never served under a newer version.
        on_ready: called whenever the workers have become ready. on_shutdown: when the frontend asks for the end by
        Control. grammars: makes what compiles grammars, from the width of the logits; by default from the tokenizer.
        waves: says when this core may step, where its model's experts are spread over cores.
        """
        super().__init__("engine", capacity=_MAILBOX)
        self._config = config
        self._frontend = frontend
        self._window = window
        self._num_drafts = num_drafts
        self._state = ModelState(journal)
        self._controls = ControlDesk(Context(self._state, self, config.weight_store), self)
        self._held: dict[int, AddRequest] = {}  # that came while new requests wait, by id
        self._waves = waves
        self._faults = Faults.find("engine")
        self._on_ready = on_ready
        self._on_shutdown = on_shutdown
        self._workers: Workers | None = None
        self._started = time.monotonic()
        self._specs: Ready | None = None  # of the first life of the workers; later ones must report the same layers
        self._plan: KvPlan | None = None
        self._core: Core | None = None
        self._early: list[AddRequest | AbortRequests] = []  # that came before the workers were ready at first
        self._make_grammars = grammars or (lambda width: NativeGrammars(config.tokenizer_dir, width))
        self._desk = GrammarDesk(lambda ready: self.ref.tell(ready, control=True))
        self._up = False
        self._room = anyio.Event()
        self._step = 0  # of the last result
        self._kv_log: KvEventLog | None = None
        self._publish: Callable[[Sequence[KvEvent]], None] = lambda events: None
        self._stats_at = 0.0
        self._was_idle = True

    def publish_to(self, publish: Callable[[Sequence[KvEvent]], None]) -> None:
        """Say who hears of changes of the prefix cache, in order. Once, before the workers run."""
        self._publish = publish
        self._kv_log = KvEventLog("CPU" if self._config.device == "cpu" else "GPU")

    def attach(self, workers: Workers) -> None:
        """Say where plans go. Once, before the workers run."""
        self._workers = workers

    def layout(self, ready: Ready) -> AllocateKv:
        """Say how the workers allocate KV: the same in each of their lives, which is why block ids stay valid.

        Raises ConfigError if the memory does not suffice, ProtocolError if restarted workers have other layers.
        """
        wanted = self._state.journal.weights
        self._state.problem = LOST.format(self._state.journal.weight_version) if wanted.lost else ""
        if ready.weight_key != wanted.key and not wanted.lost:
            raise ProtocolError(f"the workers loaded the weights {ready.weight_key!r}, needed are {wanted.key!r}")
        if self._plan is None or self._specs is None:
            if self._window is None:
                self._window = plans_in_flight(self._config.device, ready.weight_bytes)
            self._plan = plan_kv(self._config, ready, self._window, self._num_drafts, wanted.key, self._kv_log)
            self._specs = ready
        elif self._specs.kv_specs != ready.kv_specs:
            raise ProtocolError(f"restarted workers have other layers: {ready.kv_specs}, {self._specs.kv_specs} before")
        return self._plan.allocate

    def on_trial(self) -> bool:
        """Tell whether all that the workers have is one request that may have crashed them before."""
        return self._core is not None and self._core.on_trial

    async def compile(self) -> None:
        """Compile grammars in threads, for ever."""
        await self._desk.run()

    def group_event(self, event: GroupEvent | ToMember) -> None:
        """Take an event of the worker group, or of other cores; ahead of the frontend's, which may be many."""
        self.ref.tell(event, control=True)

    async def feed(self) -> None:
        """Hand the frontend's events on, for ever. When the mailbox is full they wait where credit bounds them."""
        while True:
            event = await self._frontend.receive()
            while True:
                try:
                    self.ref.tell(event)
                    break
                except MailboxFull:
                    self._room = anyio.Event()
                    await self._room.wait()

    async def handle(self, message: EngineMessage) -> None:
        """Change the state as one message says. Never waits."""
        match message:
            case GroupResult(result):
                self._result(result)
            case GroupAnswer(answer):
                self._controls.answered(answer)
            case AddRequest():
                self._add(message)
            case AbortRequests():
                self._abort(message)
            case GrammarReady():
                self._grammar_ready(message)
            case FrontendGone():
                self._early.clear()
                self._held.clear()
                self._controls.frontend_gone()
                self._desk.drop_all()
                if self._core is not None:
                    self._core.abort_all()
            case Control():
                self._control(message)
            case GroupReady():
                self._workers_ready()
            case GroupDown():
                self._workers_down(message)
            case GroupWaits(life):
                assert self._waves is not None
                self._waves.workers_wait(life)
            case Meet() | Broken() | Start() | Rest():
                assert self._waves is not None
                self._waves.take(message)

    async def idle(self) -> None:
        """Fill the window, report. Never waits."""
        self._room.set()
        self._controls.turn()
        core = self._core
        if core is None or self._workers is None:
            return
        if self._held and not self._state.holds_new:
            self._release()
        runs = self._up and self._state.may_schedule
        if self._waves is not None:
            self._waves.say(runs and not core.empty, runs, self._state.journal.lineage)
        if self._up:
            # The masks of a deferred plan are computed here, while the workers run its forward. They follow a plan that
            # is under way whatever happens.
            while (plan := core.sample_plan() or self._next_plan(core, runs)) is not None:
                if self._faults:
                    self._faults.at(plan.step)
                self._workers.send(plan)
        self._deliver_failed(core)
        if self._kv_log is not None:
            self._publish(self._kv_log.take())
        self._report(core)

    def _next_plan(self, core: Core, runs: bool) -> StepPlan | None:
        if self._waves is not None:
            return self._waves.next_plan(core, runs)
        return core.next_plan() if runs else None

    def info(self) -> EngineInfo:
        """Return what the frontend must know. The workers must have been ready once."""
        if self._plan is None or self._specs is None:
            raise RuntimeError("the workers were never ready")
        config, plan = self._config, self._plan
        return EngineInfo(
            model=config.model_name,
            max_model_len=plan.max_model_len,
            vocab_size=self._specs.vocab_size,
            num_blocks=plan.num_blocks,
            block_tokens=plan.block_tokens,
            max_num_seqs=config.max_num_seqs,
            world_size=config.tensor_parallel_size,
            dtype=config.dtype,
            startup_ms=int((time.monotonic() - self._started) * 1000),
            prefix_caching=config.enable_prefix_caching,
            model_state=self._state.wire(),
            cache_model=config.model,
        )

    def quiet(self) -> bool:
        """Whether no plan is in flight, and none will be for the sake of other ranks."""
        return (self._core is None or self._core.quiet) and (self._waves is None or self._waves.at_rest)

    def drained(self) -> bool:
        """Whether no request is left but those that are held."""
        return self._core is None or (self._core.idle and not self._desk.num_waiting)

    def abort_requests(self, names: list[str]) -> int:
        """End the requests of these names, or all, as aborted; their clients are told. Returns their number."""
        if self._core is None:
            return 0
        deltas = self._core.abort_with_news(names)
        waiting = [*self._held.values(), *self._desk.waiting()]
        waiting = [message for message in waiting if is_named(message.name, names)]
        for message in waiting:
            self._held.pop(message.id, None)
            deltas.append(end_delta(message.id, message.attempt, len(message.emitted) // 4, Finish("abort")))
        self._desk.drop(message.id for message in waiting)
        self._frontend.deliver(self._step, deltas)
        return len(deltas)

    def reset_prefix_cache(self, running: bool) -> None:
        """Let nothing that was computed so far be found any more. With `running`, running requests start over."""
        if self._core is not None:
            self._core.reset_prefix_cache(running=running)

    def kv_lost(self) -> None:
        """Compute all requests again: the workers drop what they have. Nothing may be in flight."""
        if self._core is not None:
            self._core.kv_lost()

    def use_weights(self, key: str) -> None:
        """Compute all requests again under other weights. Nothing may be in flight."""
        if self._core is not None:
            self._core.use_weights(key)

    def changed(self) -> None:
        """Tell the frontend of the model's state."""
        if self._plan is not None:
            self._frontend.ready(self.info())

    def describe(self) -> dict[str, str]:
        """Return what there is to know of the engine."""
        info = msgspec.structs.asdict(self.info())
        state = msgspec.structs.asdict(info.pop("model_state"))
        events = self._config.kv_events
        names = ("endpoint", "replay_endpoint", "topic")
        sources = [] if events is None else [{name: getattr(events, name) for name in names}]
        told = {"version": VERSION, **info, **state, "kv_events": sources}
        return {"info": msgspec.json.encode(told).decode()}

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        """Answer a Control."""
        self._frontend.control_done(id_, error, result, code, param)

    def ask_workers(self, number: int, op: str, args: dict[str, str]) -> int:
        """Send an operation to all ranks and return how many they are; 0: they are not there."""
        if not self._up or self._workers is None:
            return 0
        self._workers.send(ModelControl(number, op, args))
        return self._config.tensor_parallel_size

    def _result(self, result: StepResult) -> None:
        """Apply a result. A wrong one ends this process, not for good: the state of one of us cannot be trusted."""
        if self._core is None:
            raise EngineError("a worker sent a result before it was given any plan")
        try:
            deltas = self._core.result(result)
        except ProtocolError as error:
            raise EngineError(f"the workers' result does not fit their plan: {error.message}") from error
        self._step = result.step
        self._frontend.deliver(result.step, deltas)
        if self._waves is not None:
            self._waves.result(result)

    def _add(self, message: AddRequest) -> None:
        if self._core is None:
            self._early.append(message)
        elif self._state.holds_new and not self._core.has(message.id):
            held = self._held.get(message.id)
            if held is None or message.attempt > held.attempt:
                self._held[message.id] = message
        else:
            self._admit(message)

    def _release(self) -> None:
        held, self._held = self._held, {}
        for message in held.values():
            self._admit(message)

    def _admit(self, message: AddRequest) -> None:
        assert self._core is not None
        matcher = None
        try:
            if message.grammar is not None:
                compiled = self._desk.find(message.grammar)
                if compiled is None:
                    self._wait_for_grammar(message)
                    return
                matcher = compiled.start()
            if self._faults:
                self._faults.at(tokens=array("i", message.prompt))
            delta = self._core.add(message, matcher)
        except RequestError as error:
            self._frontend.reject(message, error.code, error.message, error.param)
            return
        if delta is not None:
            self._frontend.deliver(self._step, [delta])

    def _abort(self, message: AbortRequests) -> None:
        if self._core is None:
            self._early.append(message)
        else:
            for request_id in message.ids:
                self._held.pop(request_id, None)
            self._desk.drop(message.ids)
            self._core.abort(message.ids)

    def _wait_for_grammar(self, message: AddRequest) -> None:
        if message.attempt > self._desk.attempt(message.id):
            if self._core is not None:
                self._core.abort([message.id])  # of an earlier attempt nobody reads anything more
            self._desk.hold(message)

    def _grammar_ready(self, event: GrammarReady) -> None:
        for message in self._desk.take(event.grammar):
            if event.error is None:
                self._admit(message)
            else:
                self._frontend.reject(message, event.error.code, event.error.message, event.error.param)

    def _control(self, message: Control) -> None:
        if message.op == "shutdown":
            self._frontend.control_done(message.id)
            self._on_shutdown()
        else:
            self._controls.take(message)

    def _workers_ready(self) -> None:
        self._up = True
        info = self.info()
        if self._core is None:
            self._core = self._make_core()
            _log.info(
                "ready: %d blocks of %d tokens, context %d, %d ms",
                info.num_blocks,
                info.block_tokens,
                info.max_model_len,
                info.startup_ms,
            )
            gc.collect()
            gc.freeze()  # what is alive now stays so; collections need not look at it
        else:
            _log.info("workers are back; %d requests go on", len(self._core.request_ids()))
        self._controls.workers_ready()
        self._frontend.ready(info)
        self._on_ready()
        early, self._early = self._early, []
        for message in early:
            self._add(message) if isinstance(message, AddRequest) else self._abort(message)

    def _make_core(self) -> Core:
        assert self._plan is not None and self._specs is not None and self._window is not None
        limits = SchedLimits(
            max_num_seqs=self._config.max_num_seqs,
            max_num_batched_tokens=self._config.max_num_batched_tokens,
            max_model_len=self._plan.max_model_len,
            window=self._window,
            num_drafts=self._num_drafts,
            chunk_align=math.lcm(self._plan.chunk_align, self._config.chunk_align),
            whole_chunks=self._config.chunk_align > 1,
            vocab_size=self._specs.vocab_size,
            hidden_size=self._specs.hidden_size,
            long_prefill_threshold=self._long_prefill(),
            max_long_prefills=self._config.max_long_partial_prefills,
            max_num_waiting=self._config.max_num_waiting,
            priorities=self._config.scheduling_policy == "priority",
            **self._pooling(),
        )
        grammars = self._make_grammars(self._specs.vocab_size)
        self._desk.open(grammars)
        return Core(limits, self._plan.cache, grammars)

    def _pooling(self) -> dict[str, bool]:
        plan = self._config.pooling
        if plan is None:
            return {}
        return {"pools": True, "pools_last": plan.pools_last, "whole_prompts": plan.encoder}

    def _long_prefill(self) -> int:
        if self._config.pooling is not None and self._config.pooling.encoder:
            return 0  # its prompts cannot be cut
        given = self._config.long_prefill_token_threshold
        return max(1, self._config.max_num_batched_tokens // 2) if given is None else given

    def _workers_down(self, event: GroupDown) -> None:
        self._up = False
        self._controls.workers_down(event.message)
        if self._core is not None:
            self._core.crashed(innocent=event.innocent)
            self._deliver_failed(self._core)
        if self._waves is not None:
            self._waves.workers_down()
        self._frontend.fault(event.kind, event.message, restarting=event.restarting)

    def _deliver_failed(self, core: Core) -> None:
        failed = core.take_failed()
        if failed:
            self._frontend.deliver(self._step, failed)

    def _report(self, core: Core) -> None:
        now, is_idle = time.monotonic(), core.idle
        if now - self._stats_at >= _STATS_INTERVAL_S or (is_idle and not self._was_idle):
            self._stats_at = now
            stats = core.stats(self._workers.restarts if self._workers else 0)
            held = self._desk.num_waiting + len(self._held)
            self._frontend.stats(msgspec.structs.replace(stats, waiting=stats.waiting + held) if held else stats)
        self._was_idle = is_idle
