"""Entry of a worker process: connect, say hello, then load torch. Torch is the slow part of a start."""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, cast

from octavo import log
from octavo.actors.child import Parent, register_dump, watch_parent
from octavo.devices import choose_threads
from octavo.errors import ConfigError, OctavoError
from octavo.faults import Faults
from octavo.wire.codec import Codec
from octavo.wire.version import VERSION
from octavo.wire.worker import WorkerHello, WorkerToCore
from octavo.workers.context import begin_context
from octavo.workers.device_loop import DeviceLoop
from octavo.workers.faulty import FaultyBody
from octavo.workers.heartbeat import HeartbeatThread
from octavo.workers.threads import set_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from octavo.wire.worker import Init
    from octavo.workers.body import WorkerBody

__all__ = ["main"]

_log = logging.getLogger(__name__)

_DEFAULT_BODY = "octavo.workers.model_body:ModelBody"


def main(argv: Sequence[str] | None = None) -> None:
    """Run one worker until its core says Shutdown or is gone. Exits with 0 after Shutdown, 1 after a Fault."""
    watch_parent()
    register_dump()
    arguments = _parse(argv)
    try:
        parent = Parent.find()
        rank = _rank(parent.name)
    except OctavoError as error:
        sys.exit(error.message)
    log.setup(parent.name, arguments.log_level)
    inbox, outbox = parent.inbox(), parent.outbox()
    codec: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")
    outbox.send([codec.encode(WorkerHello(VERSION, rank, os.getpid(), parent.incarnation))])
    heartbeat = HeartbeatThread(parent, rank)
    heartbeat.start()
    code = DeviceLoop(rank, inbox, outbox, _body_maker(arguments.body, heartbeat), parent.outbox).run()
    heartbeat.stop()
    parent.close()
    # Not through the interpreter's end: threads of torch and gloo may wait for ranks that are gone.
    sys.stderr.flush()
    os._exit(code)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m octavo.workers", description=__doc__)
    parser.add_argument("--body", default=_DEFAULT_BODY, metavar="MODULE:CLASS", help="the WorkerBody to run")
    parser.add_argument("--log-level", default="info", choices=log.LEVELS)
    return parser.parse_args(argv)


def _rank(name: str) -> int:
    number = name.rpartition("-")[2].rpartition(".")[2]  # worker-0; of several engine cores, worker-CORE.0
    if not number.isdigit():
        raise ConfigError(f"OCTAVO_NAME is {name!r} instead of worker-RANK: only octavo itself can start this program")
    return int(number)


def _body_maker(target: str, heartbeat: HeartbeatThread) -> Callable[[Init], WorkerBody]:
    def make(init: Init) -> WorkerBody:
        threads = choose_threads(init.threads, init.world_size)
        set_environment(threads)
        begin_context(init.device)
        started = time.monotonic()
        module, _, name = target.partition(":")
        gc.disable()  # what imports make stays: looking through it again and again is a sixth of torch's import
        try:
            body = cast("WorkerBody", getattr(importlib.import_module(module), name)())
        finally:
            gc.enable()
        _log.info("imported in %.1f s; %d threads", time.monotonic() - started, threads)
        # What the imports made lives as long as the process: the collector need not look at it again.
        gc.freeze()
        if faults := Faults.find("worker", init.rank):
            body = FaultyBody(body, faults)
        heartbeat.follow(body.progress)
        return body

    return make
