"""Real worker processes behind the interface of a body: one per rank, over the real sockets."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import zmq

from octavo.wire.codec import Codec
from octavo.wire.worker import (
    CoreToWorker,
    Fault,
    Heartbeat,
    Init,
    KvReady,
    Ready,
    Shutdown,
    StepResult,
    WorkerHello,
    WorkerToCore,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from octavo.wire.worker import AllocateKv, StepPlan

__all__ = ["WorkerFault", "WorkerProcess", "WorkerProcesses"]

T = TypeVar("T")
TIMEOUT_S = 90.0
KEY = b"a worker's key  "


class WorkerFault(Exception):
    """A worker reported a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.kind}: {fault.message}\n{fault.traceback}")
        self.fault = fault


class WorkerProcess:
    """One process, started as the engine core starts it."""

    def __init__(self, rank: int, folder: Path, *arguments: str) -> None:
        self.rank = rank
        self.incarnation = secrets.randbits(64)
        self._context = zmq.Context()
        self._push, self._pull = self._context.socket(zmq.PAIR), self._context.socket(zmq.PULL)
        names = {"OCTAVO_NAME": f"worker-{rank}", "OCTAVO_INCARNATION": str(self.incarnation), "OCTAVO_KEY": KEY.hex()}
        for key, socket in (("INBOX", self._push), ("OUTBOX", self._pull)):
            endpoint = f"ipc://{folder}/{rank}-{key.lower()}.sock"
            socket.bind(endpoint)
            names[f"OCTAVO_{key}"] = endpoint
        self._to: Codec[CoreToWorker] = Codec(CoreToWorker, "message to a worker")
        self._from: Codec[WorkerToCore] = Codec(WorkerToCore, "message from a worker")
        self.heartbeats: list[Heartbeat] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo.workers", *arguments], stdin=subprocess.PIPE, env=os.environ | names
        )

    def send(self, message: CoreToWorker) -> None:
        """Send one message."""
        self._push.send(self._to.encode(message))

    def receive(self) -> WorkerToCore:
        """Wait for the next message that is no heartbeat. Raises WorkerFault for a fault."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            if self._pull.poll(100):
                message = self._next()
                if isinstance(message, Fault):
                    raise WorkerFault(message)
                if not isinstance(message, Heartbeat):
                    return message
                self.heartbeats.append(message)
            elif self.process.poll() is not None and not self._pull.poll(200):
                raise EOFError(f"worker-{self.rank} ended with {self.process.returncode}")
        raise TimeoutError(f"worker-{self.rank} said nothing for {TIMEOUT_S} s")

    def _next(self) -> WorkerToCore:
        key, body = self._pull.recv_multipart()
        assert key == KEY
        return self._from.decode(body)

    def wait_heartbeat(self) -> None:
        """Wait for one more heartbeat; nothing else may come."""
        assert self._pull.poll(round(TIMEOUT_S * 1000)), "no heartbeat"
        message = self._next()
        assert isinstance(message, Heartbeat), message
        self.heartbeats.append(message)

    def expect(self, kind: type[T]) -> T:
        """Return the next message, which must be of `kind`."""
        message = self.receive()
        assert isinstance(message, kind), message
        return message

    def close(self) -> None:
        """End the process and the sockets."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._context.destroy(linger=0)


class WorkerProcesses:
    """A group of ranks that implements init, allocate and step as a body does."""

    def __init__(self, ranks: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-test-")
        self.ranks = [WorkerProcess(rank, Path(self._folder.name)) for rank in range(ranks)]
        for worker in self.ranks:
            hello = worker.expect(WorkerHello)
            assert (hello.rank, hello.incarnation, hello.pid) == (worker.rank, worker.incarnation, worker.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.ranks:
            worker.close()
        self._folder.cleanup()

    def init(self, message: Init) -> Ready:
        size = len(self.ranks)
        meet = f"file://{self._folder.name}/rendezvous" if size > 1 else ""
        for worker in self.ranks:
            device = f"cuda:{worker.rank}" if message.device.startswith("cuda") else message.device
            mine = msgspec.structs.replace(message, rank=worker.rank, device=device)
            worker.send(msgspec.structs.replace(mine, world_size=size, rendezvous=meet))
        ready = [worker.expect(Ready) for worker in self.ranks]
        assert len({(answer.kv_specs, answer.vocab_size) for answer in ready}) == 1
        return ready[0]

    def allocate(self, message: AllocateKv) -> KvReady:
        for worker in self.ranks:
            worker.send(message)
        ready = [worker.expect(KvReady) for worker in self.ranks]
        return ready[0]

    def step(self, plan: StepPlan) -> StepResult:
        for worker in self.ranks:
            worker.send(plan)
        return self.ranks[0].expect(StepResult)

    def shutdown(self) -> list[int]:
        """Ask all to leave; return their exit codes."""
        for worker in self.ranks:
            worker.send(Shutdown())
        return [worker.process.wait(30) for worker in self.ranks]
