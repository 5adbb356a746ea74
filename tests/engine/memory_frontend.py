"""A frontend in memory, and an engine with real worker processes behind it."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import zmq

from octavo.actors.errors import ChildrenFailed
from octavo.config import EngineConfig
from octavo.engine_core.engine import EngineCore
from octavo.engine_core.frontend import FrontendEvent
from octavo.engine_core.journal import Journal
from octavo.engine_core.worker_group import WorkerGroup
from octavo.wire.frontend import AddRequest, ControlDone, Delta, EngineFault, EngineInfo, Stats
from tests.engine.fake_worker import reference
from tests.engine.harness import Transcript

__all__ = ["MemoryFrontend", "Running", "engine_config", "running_engine"]

BODY = "tests.engine.fake_worker:FakeWorker"


class MemoryFrontend:
    """Implements `octavo.engine_core.frontend.Frontend` and remembers all it was told."""

    def __init__(self) -> None:
        self._events: deque[FrontendEvent] = deque()
        self._changed = anyio.Event()
        self.requests: dict[int, AddRequest] = {}
        self.seen: dict[int, Transcript] = {}
        self.rejected: dict[int, tuple[str, str]] = {}
        self.infos: list[EngineInfo] = []
        self.faults: list[EngineFault] = []
        self.controls: list[tuple[int, str | None]] = []
        self.answers: dict[int, ControlDone] = {}
        self.all_stats: list[Stats] = []

    def say(self, event: FrontendEvent) -> None:
        """Send an event to the engine."""
        if isinstance(event, AddRequest):
            self.requests[event.id] = event
            self.seen[event.id] = Transcript(list(array("i", event.emitted)))
        self._events.append(event)
        self._notify()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is looked at whenever something was said."""
        while not condition():
            await self._changed.wait()

    async def finished(self, *ids: int) -> None:
        """Wait until requests have ended."""
        await self.until(lambda: all(self.seen[number].finish for number in ids))

    def verify(self, number: int, max_model_len: int) -> None:
        """Compare a request's outputs with its plain evaluation."""
        message, seen = self.requests[number], self.seen[number]
        expected = reference(list(array("i", message.prompt)), message.sampling, max_model_len)
        assert (seen.tokens, seen.finish) == expected, f"request {number}: {seen}"

    async def receive(self) -> FrontendEvent:
        while not self._events:
            await self._changed.wait()
        return self._events.popleft()

    def receive_nowait(self) -> FrontendEvent | None:
        return self._events.popleft() if self._events else None

    def ready(self, info: EngineInfo) -> None:
        self.infos.append(info)
        self._notify()

    def fault(self, kind: str, message: str, *, restarting: bool) -> None:
        self.faults.append(EngineFault(kind, message, restarting))
        self._notify()

    def deliver(self, step: int, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            seen = self.seen[delta.id]
            assert seen.finish is None
            assert delta.start == len(seen.tokens), f"{delta} does not follow {len(seen.tokens)} tokens"
            seen.tokens += array("i", delta.tokens)
            if delta.finish is not None:
                seen.finish, seen.message = delta.finish.reason, delta.finish.message
        self._notify()

    def reject(self, request: AddRequest, code: str, message: str, param: str | None = None) -> None:
        self.rejected[request.id] = (code, message)
        self._notify()

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        self.controls.append((id_, error))
        self.answers[id_] = ControlDone(id_, error, result or {}, code, param)
        self._notify()

    def stats(self, stats: Stats) -> None:
        self.all_stats.append(stats)
        self._notify()

    async def drain(self, reason: str) -> bool:
        return True

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@dataclass
class Running:
    """An engine that runs, and what it consists of."""

    frontend: MemoryFrontend
    engine: EngineCore
    group: WorkerGroup
    failure: ChildrenFailed | None = None


def engine_config(folder: Path, model: str = "fake", **changes: object) -> EngineConfig:
    """Return a configuration for the FakeWorker; `folder` gets the sockets."""
    folder.chmod(0o700)
    defaults: dict[str, object] = {
        "model": model,
        "model_name": "fake",
        "model_context_len": 400,
        "run_dir": str(folder),
        "frontend_endpoint": "",
        "dtype": "float32",
        "max_num_seqs": 16,
        "max_num_batched_tokens": 64,
        "block_size": 4,
        "kv_cache_bytes": 1 << 19,
    }
    return EngineConfig(**(defaults | changes))  # type: ignore[arg-type]


@asynccontextmanager
async def running_engine(config: EngineConfig, window: int = 1, num_drafts: int = 0) -> AsyncIterator[Running]:
    """Run an engine with worker processes; at the end everything has stopped, within a minute."""
    frontend = MemoryFrontend()
    with zmq.Context[zmq.Socket[bytes]]() as context, anyio.fail_after(60):
        journal = Journal(Path(config.run_dir) / "journal.jsonl")
        engine = EngineCore(
            config, frontend, journal, window=window, num_drafts=num_drafts, on_shutdown=lambda: group.stop()
        )
        layout, on_event = engine.layout, engine.group_event
        group = WorkerGroup(config, context, journal, layout, on_event, on_trial=engine.on_trial, body=BODY)
        engine.attach(group)
        running = Running(frontend, engine, group)

        async def run_group() -> None:
            try:
                await group.run()
            except ChildrenFailed as error:
                running.failure = error
            engine.stop()

        async with anyio.create_task_group() as tasks:
            feed = anyio.CancelScope()

            async def run_feed() -> None:
                with feed:
                    await engine.feed()

            tasks.start_soon(engine.run)
            tasks.start_soon(run_feed)
            tasks.start_soon(run_group)
            try:
                yield running
            finally:
                feed.cancel()
                group.stop()
