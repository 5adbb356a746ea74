"""Clients that render at once: threads of one process, and processes of their own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from bench.render.engines import Engines

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from bench.render.conversations import Messages

__all__ = ["Clients", "Processes", "Threads", "Timing"]

#: Seconds that a process waits for the others to be ready.
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Timing:
    """What all clients did together."""

    per_second: float  # inputs
    cpu_ms: float  # of one input, all threads
    tokens: int  # that came out


class Clients(Protocol):
    """Some clients of one kind, each of which works through inputs of its own."""

    count: int
    kind: str

    def time(self, what: str, inputs: Sequence[Any]) -> Timing:
        """Do `what`, the name of a method of Engines, with all inputs."""


class Threads:
    """Threads of this process; as Python has it, one at a time holds the interpreter."""

    kind = "threads"

    def __init__(self, engines: Engines, count: int) -> None:
        self._engines, self.count = engines, count

    def time(self, what: str, inputs: Sequence[Any]) -> Timing:
        """Do `what` with all inputs; handing them over costs nothing, because each thread has its own."""
        work = getattr(self._engines, what)

        def client(number: int) -> int:
            return sum(len(work(one)) for one in inputs[number :: self.count])

        with ThreadPoolExecutor(self.count) as pool:
            list(pool.map(len, inputs[: self.count]))  # threads are there
            began, cpu = time.perf_counter(), time.process_time()
            tokens = sum(pool.map(client, range(self.count)))
            passed, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Timing(len(inputs) / passed, cpu * 1000 / len(inputs), tokens)


class Processes:
    """Processes with engines of their own, as the workers of a Python web server are; `first` is what warms each."""

    kind = "processes"

    def __init__(self, folder: Path, count: int, first: Messages) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.count = count
        self._pool = ProcessPoolExecutor(count, context, _prepare, (folder, context.Barrier(count), first))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def time(self, what: str, inputs: Sequence[Any]) -> Timing:
        """Do `what` with all inputs; time runs from when every process has its own until the last is done."""
        shares = [inputs[number :: self.count] for number in range(self.count)]
        parts = list(self._pool.map(_client, [what] * self.count, shares))
        passed = max(part.ended for part in parts) - min(part.began for part in parts)
        cpu = sum(part.cpu for part in parts)
        return Timing(len(inputs) / passed, cpu * 1000 / len(inputs), sum(part.tokens for part in parts))


@dataclass(frozen=True, slots=True)
class _Part:
    began: float  # seconds, of a clock that all processes share
    ended: float
    cpu: float  # seconds
    tokens: int


#: Of a process that is a client: its engines, and where it waits for the others.
_own: tuple[Engines, Barrier] | None = None


def _prepare(folder: Path, barrier: Barrier, first: Messages) -> None:
    global _own
    engines = Engines(folder)
    engines.transformers(first)
    engines.octavo(first)
    _own = engines, barrier


def _client(what: str, inputs: Sequence[Any]) -> _Part:
    assert _own is not None
    engines, barrier = _own
    work = getattr(engines, what)
    barrier.wait(_PATIENCE_S)  # and so each process takes one share
    began, cpu = time.monotonic(), time.process_time()
    tokens = sum(len(work(one)) for one in inputs)
    return _Part(began, time.monotonic(), time.process_time() - cpu, tokens)
