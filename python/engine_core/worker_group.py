"""The workers of one engine core: ranks that start, fail and restart together."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from octavo.actors.errors import ActorDead, ChildrenFailed, ProcessHung, SendFull
from octavo.actors.link import ZmqLink
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.supervisor import ChildExit, ChildSpec, RestartLimit, Strategy, Supervisor, Verdict
from octavo.engine_core.journal import BASE_VERSION
from octavo.errors import ConfigError, ModelError, ProtocolError, WorkerError
from octavo.wire.codec import Codec
from octavo.wire.version import VERSION
from octavo.wire.worker import (
    AllocateKv,
    CoreToWorker,
    Fault,
    Heartbeat,
    Init,
    KvReady,
    ModelControlDone,
    Ready,
    Shutdown,
    StepResult,
    WorkerHello,
    WorkerToCore,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import zmq
    from anyio.abc import TaskStatus

    from octavo.config import EngineConfig
    from octavo.engine_core.journal import Journal
    from octavo.wire.worker import ModelControl, SamplePlan, StepPlan

__all__ = [
    "FINAL",
    "GroupAnswer",
    "GroupDown",
    "GroupEvent",
    "GroupReady",
    "GroupResult",
    "GroupWaits",
    "WorkerGroup",
]

_log = logging.getLogger("octavo.engine_core")

#: Errors that another start would not cure.
FINAL = (ModelError, ConfigError, ProtocolError)

#: Kind of a fault: a rank of another engine core is gone, in the middle of a step.
_PEER = "peer_lost"

#: From the spawn of a worker to its hello: imports may be slow when many start on few cores.
_HELLO_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """All ranks have said hello and wait for the workers of other engine cores: see `begin`."""

    life: str  # of these ranks


@dataclass(frozen=True, slots=True)
class GroupReady:
    """All ranks have their weights and their KV: plans may go."""


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The output rank's result of a plan that this life of the group was sent."""

    result: StepResult


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """A rank's answer to an operation that this life of the group was asked for."""

    answer: ModelControlDone


@dataclass(frozen=True, slots=True)
class GroupDown:
    """A rank is gone, so all are; no result of theirs follows."""

    kind: str  # as in EngineFault
    message: str
    restarting: bool = True  # false: the last event; the group has given up
    innocent: bool = False  # what the workers were doing is not why


GroupEvent = GroupWaits | GroupReady | GroupResult | GroupAnswer | GroupDown


class WorkerGroup:
    """Supervise one process per rank, bring them up together, send them plans. A `Child`; runs once.

    Every life of the group goes: spawn, hello, Init, Ready, AllocateKv, KvReady. Whatever a rank does after one of
    them has failed belongs to the past and is not reported. Where experts are spread over engine cores, Init waits for
    `begin`, because the workers of all cores meet in it.
    """

    def __init__(
        self,
        config: EngineConfig,
        context: zmq.Context[zmq.Socket[bytes]],
        journal: Journal,
        layout: Callable[[Ready], AllocateKv],
        on_event: Callable[[GroupEvent], None],
        *,
        on_trial: Callable[[], bool] = lambda: False,
        body: str | None = None,
    ) -> None:
        """Keep the arguments.

        journal: says, at each start, what weights the workers must load.
        layout: says how to allocate KV, from what the ranks report, which is the same for all; may raise ConfigError.
        on_event: called in order; must not wait.
        on_trial: tells whether a request that may have crashed the workers is being tried alone. That it crashes them
        again is bounded by the trial and does not count toward the restarts.
        body: "module:Class" of another worker body, for tests.
        """
        self.name = "workers"
        self._config = config
        self._context = context
        self._layout = layout
        self._on_event = on_event
        self._on_trial = on_trial
        self._journal = journal
        self._body = body
        self._to_worker: Codec[CoreToWorker] = Codec(CoreToWorker, "message to a worker")
        self._from_worker: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")
        self._life = 0  # of the group; higher after each failure
        self._meeting = secrets.token_hex(8)  # where this life's ranks find each other, alone
        self._experts_meeting = ""  # of this life's ranks and those of other cores
        self._left = False  # this life was ended by `leave`
        self._last_down = ("worker_died", "the workers ended")
        self._ranks: dict[int, ProcessActor[WorkerToCore]] = {}
        self._ready: dict[int, Ready] = {}
        self._kv_ready: set[int] = set()
        self._supervisor = Supervisor(
            self.name,
            [ChildSpec(name=f"worker-{r}", factory=self._factory(r)) for r in range(config.tensor_parallel_size)],
            strategy=Strategy.ONE_FOR_ALL,
            limit=RestartLimit(max_restarts=config.max_restarts, window_s=config.restart_window_s),
            on_exit=self._exited,
            on_ready=self._all_said_hello,
        )

    @property
    def restarts(self) -> int:
        """How often the group was started again."""
        return self._supervisor.restarts

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [actor.pid for _, actor in sorted(self._ranks.items()) if actor.pid is not None]

    @property
    def life(self) -> str:
        """A word that no other life of any group has."""
        return self._meeting

    def begin(self, meeting: str, life: str) -> None:
        """Let ranks that wait load, and meet those of other engine cores; nothing if they are gone."""
        if life == self.life:
            self._experts_meeting = meeting
            self._send_init()

    def leave(self, meeting: str) -> None:
        """End the ranks, because those that they met are gone; they start again. Nothing if they met at another."""
        if meeting != self._experts_meeting:
            return
        self._left = True
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def run(self, *, task_status: TaskStatus[Any] = anyio.TASK_STATUS_IGNORED) -> None:
        """Look after the ranks. Reports started when all said hello; GroupReady follows when they can work.

        Returns after `stop`. Raises ChildrenFailed, whose causes say why: one of FINAL, which another start would not
        cure; or the restart limit was exceeded; or a rank ended before its first hello, so that another engine core may
        have more luck.
        """
        try:
            await self._supervisor.run(task_status=task_status)
        except ChildrenFailed as error:
            final = error.exhausted or any(isinstance(cause, FINAL) for cause in error.causes)
            self._on_event(GroupDown(*self._last_down, restarting=not final))
            raise

    def stop(self) -> None:
        """Ask the ranks to finish the current step and leave."""
        self._supervisor.stop()

    def send(self, message: StepPlan | SamplePlan | ModelControl) -> None:
        """Send a message, encoded once, to all ranks. If one has died since, GroupDown is on its way."""
        self._broadcast(message)

    def _broadcast(self, message: CoreToWorker) -> None:
        frames = [self._to_worker.encode(message)]
        for actor in self._ranks.values():
            self._post(actor, frames)

    def _post(self, actor: ProcessActor[WorkerToCore], frames: list[bytes]) -> None:
        """Send, or leave it to the end of that process, which then is certain, to start all ranks again."""
        try:
            actor.send(frames)
        except ActorDead:
            pass
        except SendFull:
            # With so few messages under way, it is not the queue that is full: the process has left the socket.
            # Should it be alive all the same, then it would wait for this message for ever.
            _log.warning("%s does not take messages any more; ending it", actor.name)
            if actor.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(actor.pid, signal.SIGKILL)

    def _factory(self, rank: int) -> Callable[[], ProcessActor[WorkerToCore]]:
        def make() -> ProcessActor[WorkerToCore]:
            life = self._life
            actor = ProcessActor(
                self._spec(rank),
                ZmqLink(self._context, Path(self._config.run_dir), lambda frames: self._from_worker.decode(frames[0])),
                check_hello=lambda message: _check_hello(message, rank, self._ranks[rank].incarnation),
                on_message=lambda message: self._received(life, rank, message),
                progress=_progress,
                stop_message=[self._to_worker.encode(Shutdown())],
            )
            self._ranks[rank] = actor
            return actor

        return make

    def _spec(self, rank: int) -> ProcessSpec:
        argv = [sys.executable, "-m", "octavo.workers", "--log-level", self._config.log_level]
        return ProcessSpec(
            name=f"worker-{rank}" if self._config.data_parallel_size == 1 else f"worker-{self._config.rank}.{rank}",
            argv=[*argv, "--body", self._body] if self._body else argv,
            hello_timeout_s=_HELLO_TIMEOUT_S,
            hang_timeout_s=self._config.worker_timeout_s,
            dump_signal=signal.SIGUSR1,
        )

    def _all_said_hello(self) -> None:
        if self._config.expert_folder:
            self._on_event(GroupWaits(self.life))
        else:
            self._send_init()

    def _send_init(self) -> None:
        for rank, actor in self._ranks.items():
            self._post(actor, [self._to_worker.encode(self._init(rank))])

    def _init(self, rank: int) -> Init:
        config, ranks = self._config, self._config.tensor_parallel_size
        weights = self._journal.weights
        return Init(
            rank=rank,
            world_size=ranks,
            rendezvous=f"file://{config.run_dir}/rendezvous-{self._meeting}" if ranks > 1 else "",
            model=config.model,
            dtype=config.dtype,
            device=config.device if config.device == "cpu" else f"{config.device}:{config.rank * ranks + rank}",
            load_format=config.load_format,
            hf_overrides=config.hf_overrides,
            seed=config.seed,
            max_model_len=config.max_model_len or config.model_context_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            threads=config.threads,
            weight_key=BASE_VERSION if weights.lost else weights.key,
            overlays=() if weights.lost else weights.overlays,
            graph_sizes=config.graph_sizes,
            memory_utilization=config.gpu_memory_utilization if config.kv_cache_bytes is None else 0.0,
            logprobs_mode=config.logprobs_mode,
            pooling=config.pooling,
            expert_rank=config.rank if config.expert_folder else 0,
            expert_ranks=config.data_parallel_size if config.expert_folder else 1,
            expert_rendezvous=f"file://{config.expert_folder}/experts-{self._experts_meeting}",
        )

    def _received(self, life: int, rank: int, message: WorkerToCore) -> None:
        if life != self._life:
            return
        match message:
            case StepResult():
                self._on_event(GroupResult(message))
            case ModelControlDone():
                self._on_event(GroupAnswer(message))
            case Ready():
                self._ready[rank] = message
                if len(self._ready) == self._config.tensor_parallel_size:
                    self._broadcast(self._layout(_agreed(self._ready)))
            case KvReady():
                self._kv_ready.add(rank)
                if len(self._kv_ready) == self._config.tensor_parallel_size:
                    self._on_event(GroupReady())
            case Fault():
                raise _fault_error(message)
            case WorkerHello() | Heartbeat():
                pass

    def _exited(self, exit: ChildExit) -> Verdict | None:
        self._last_down = kind, message = _describe(exit)
        self._life += 1
        self._meeting = secrets.token_hex(8)
        innocent, self._left, self._experts_meeting = self._left or kind == _PEER, False, ""
        kind = "worker_died" if kind == _PEER else kind
        self._ready.clear()
        self._kv_ready.clear()
        if isinstance(exit.error, FINAL):
            return Verdict.GIVE_UP
        _log.error("%s", message)
        on_trial = self._on_trial()  # before the engine hears of it
        self._on_event(GroupDown(kind, message, innocent=innocent))
        return Verdict.RESTART_UNCOUNTED if on_trial else None


def _check_hello(message: WorkerToCore, rank: int, incarnation: int) -> None:
    if not isinstance(message, WorkerHello):
        raise ProtocolError(f"worker-{rank} began with {type(message).__name__} instead of WorkerHello")
    if message.version != VERSION:
        raise ProtocolError(f"worker-{rank} is octavo {message.version}, the engine core {VERSION}: reinstall octavo")
    if message.incarnation != incarnation:
        raise ProtocolError(f"worker-{rank} belongs to another start of this engine core")


def _progress(message: WorkerToCore) -> Hashable | None:
    """Return what must change while a worker is at work; None for anything but a heartbeat of one that is."""
    if isinstance(message, Heartbeat) and message.phase != "idle":
        return message.phase, message.step, message.layer
    return None


def _agreed(ready: dict[int, Ready]) -> Ready:
    """Return one Ready for all ranks, with the least free memory. Raises ProtocolError if their layers differ."""
    first = ready[0]
    for rank, other in ready.items():
        if (other.kv_specs, other.vocab_size) != (first.kv_specs, first.vocab_size):
            raise ProtocolError(f"worker-{rank} has other layers than worker-0: {other.kv_specs}, {first.kv_specs}")
        if other.weight_key != first.weight_key:
            raise ProtocolError(f"worker-{rank} has the weights {other.weight_key!r}, worker-0 {first.weight_key!r}")
    return min(ready.values(), key=lambda message: (message.kv_bytes, message.free_bytes))


def _fault_error(fault: Fault) -> Exception:
    where = f"worker-{fault.rank}" + (f", step {fault.step}" if fault.step else "")
    if fault.kind == "model":
        return ModelError(fault.message)
    if fault.kind == "peer":
        return WorkerError(f"{where}: {fault.message}", _PEER)
    # Its traceback is in the log, where the worker wrote it; this message reaches clients.
    return WorkerError(f"{where}: {fault.message}", "worker_fault")


def _describe(exit: ChildExit) -> tuple[str, str]:
    """Return the kind, as in EngineFault, and what happened."""
    error = exit.error
    if error is None:
        return "worker_died", f"{exit.name} ended without having been asked to"
    if isinstance(error, ProcessHung):
        return "worker_hung", error.message
    if isinstance(error, WorkerError):
        return error.kind, error.message
    if isinstance(error, FINAL):
        return "worker_fault", error.message
    return "worker_died", str(error)
