"""The process of an engine core: `python -m octavo.engine_core --config engine.json`."""

from __future__ import annotations

import argparse
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
import zmq

from octavo import log
from octavo.actors.child import report, watch_parent
from octavo.actors.errors import ChildrenFailed
from octavo.config import EngineConfig
from octavo.engine_core.engine import EngineCore
from octavo.engine_core.frontend_link import FrontendLink
from octavo.engine_core.worker_group import FINAL, WorkerGroup
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run_engine"]

_log = logging.getLogger(__name__)

#: The reason was said, and starting again would not help.
_EXIT_FINAL = 2
#: The workers failed more often than is allowed.
_EXIT_EXHAUSTED = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run an engine core until it is told to leave; return the exit code.

    0 done; 1 failed, another start may help; 2 another start would not help; 3 the workers used up their restarts.
    """
    parser = argparse.ArgumentParser(prog="python -m octavo.engine_core", description="The engine core of octavo.")
    parser.add_argument("--config", type=Path, required=True, help="engine.json, which `octavo serve` writes")
    parser.add_argument("--body", help="module:Class of another worker body, for tests")
    args = parser.parse_args(argv)
    watch_parent()
    config = msgspec.json.decode(args.config.read_bytes(), type=EngineConfig)
    log.setup("engine", config.log_level)
    report("started")
    try:
        anyio.run(run_engine, config, args.body)
    except BaseException as failure:
        error = _only_error(failure)
        if not isinstance(error, OctavoError):
            raise
        _log.error("%s", error.message)
        if isinstance(error, ChildrenFailed) and error.exhausted:
            return _EXIT_EXHAUSTED
        return _EXIT_FINAL if isinstance(error, FINAL) else 1
    return 0


async def run_engine(config: EngineConfig, body: str | None = None) -> None:
    """Run frontend link, workers and engine until SIGTERM, SIGINT or a Control of the frontend ends them.

    Raises ModelError, ConfigError, ProtocolError for what is final, ChildrenFailed when the workers failed too often.
    """
    failure: ChildrenFailed | None = None
    with zmq.Context[zmq.Socket[bytes]]() as context:
        link = FrontendLink.connect(context, config.frontend_endpoint, rank=config.rank)
        # On a CPU core and worker share the processors: a second plan in flight would only make tokens late.
        window = 1 if config.device == "cpu" else 2
        engine = EngineCore(
            config, link, window=window, on_ready=lambda: report("ready"), on_shutdown=lambda: group.stop()
        )
        group = WorkerGroup(config, context, engine.layout, engine.group_event, body=body)
        engine.attach(group)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(link.run)
            tasks.start_soon(engine.feed)
            tasks.start_soon(_stop_on_signal, group)
            async with anyio.create_task_group() as serving:
                serving.start_soon(engine.run)
                try:
                    await group.run()
                except ChildrenFailed as error:
                    failure = error
                engine.stop()
            await link.drain("the workers failed" if failure else "shutdown")
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise next((cause for cause in failure.causes if isinstance(cause, FINAL)), failure)


async def _stop_on_signal(group: WorkerGroup) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("%s: stopping", signal.Signals(number).name)
            group.stop()


def _only_error(failure: BaseException) -> BaseException:
    """Return the error inside nested groups of one: task groups wrap whatever ends them."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure
