"""An engine and its workers, from start to end: the same behind a wire and in a user's process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from octavo.actors.errors import ChildrenFailed
from octavo.engine_core.engine import EngineCore
from octavo.engine_core.journal import Journal
from octavo.engine_core.kv_publisher import KvPublisher
from octavo.engine_core.waves.desk import WaveDesk
from octavo.engine_core.waves.link import WaveLink, coordinate
from octavo.engine_core.waves.member import WaveMember
from octavo.engine_core.worker_group import FINAL, WorkerGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    import zmq

    from octavo.config import EngineConfig
    from octavo.engine_core.frontend import Frontend

__all__ = ["only_error", "run_core"]


async def run_core(
    config: EngineConfig,
    frontend: Frontend,
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    on_start: Callable[[Callable[[], None]], object],
    on_ready: Callable[[], None] = lambda: None,
    body: str | None = None,
) -> None:
    """Run workers and engine until they are stopped, and let the frontend take what was said.

    on_start: is given what stops them, to be called on this loop. on_ready: called whenever the workers have become
    ready. body: "module:Class" of another worker body, for tests.

    Raises ModelError, ConfigError, ProtocolError for what is final, ChildrenFailed when the workers failed too often.
    """
    failure: ChildrenFailed | None = None
    publisher = KvPublisher.bind(context, config.kv_events, config.rank) if config.kv_events is not None else None
    journal = Journal(Path(config.run_dir) / "journal.jsonl")
    link, waves = _waves(config, context)
    engine = EngineCore(
        config,
        frontend,
        journal,
        window=config.plans_in_flight,
        on_ready=on_ready,
        on_shutdown=lambda: group.stop(),
        waves=waves,
    )
    group = WorkerGroup(
        config, context, journal, engine.layout, engine.group_event, on_trial=engine.on_trial, body=body
    )
    engine.attach(group)
    if waves is not None:
        waves.attach(group)
    on_start(group.stop)
    if publisher is not None:
        engine.publish_to(publisher.publish)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.feed)
        if publisher is not None:
            tasks.start_soon(publisher.run)
        tasks.start_soon(engine.compile)
        if link is not None and waves is not None:
            tasks.start_soon(link.run, engine.group_event, waves.repeat)
            if config.rank == 0:
                tasks.start_soon(coordinate, context, _coordinator(config), config.data_parallel_size)
        async with anyio.create_task_group() as serving:
            serving.start_soon(engine.run)
            try:
                await group.run()
            except ChildrenFailed as error:
                failure = error
            engine.stop()
        await frontend.drain("the workers failed" if failure else "shutdown")
        tasks.cancel_scope.cancel()
    if publisher is not None:
        publisher.close()
    if failure is not None:
        raise next((cause for cause in failure.causes if isinstance(cause, FINAL)), failure)


def _waves(config: EngineConfig, context: zmq.Context[zmq.Socket[bytes]]) -> tuple[WaveLink | None, WaveDesk | None]:
    """Return the link to other cores and what it serves, where experts are spread over cores."""
    if not config.expert_folder:
        return None, None
    link = WaveLink.connect(context, _coordinator(config), config.rank)
    return link, WaveDesk(WaveMember(config.rank), link.send)


def _coordinator(config: EngineConfig) -> str:
    return f"ipc://{config.expert_folder}/waves.sock"


def only_error(failure: BaseException) -> BaseException:
    """Return the error inside nested groups of one: task groups wrap whatever ends them."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure
