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
from octavo.actors.child import register_dump, report, watch_parent
from octavo.actors.errors import ChildrenFailed
from octavo.actors.pulse import beat
from octavo.config import EngineConfig
from octavo.engine_core.frontend_link import FrontendLink
from octavo.engine_core.running import only_error, run_core
from octavo.engine_core.worker_group import FINAL
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    register_dump()
    config = msgspec.json.decode(args.config.read_bytes(), type=EngineConfig)
    name = "engine" if config.data_parallel_size == 1 else f"engine-{config.rank}"
    log.setup(name, config.log_level)
    report("started")
    try:
        anyio.run(run_engine, config, args.body)
    except BaseException as failure:
        error = only_error(failure)
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
    with zmq.Context[zmq.Socket[bytes]]() as context:
        key = bytes.fromhex(config.link_key)
        link = FrontendLink.connect(context, config.frontend_endpoint, rank=config.rank, key=key)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(beat)
            tasks.start_soon(link.run)
            await run_core(
                config,
                link,
                context,
                on_start=lambda stop: tasks.start_soon(_stop_on_signal, stop),
                on_ready=lambda: report("ready"),
                body=body,
            )
            tasks.cancel_scope.cancel()


async def _stop_on_signal(stop: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _log.info("%s: stopping", signal.Signals(number).name)
            stop()
