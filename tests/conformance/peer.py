"""The Python end of the conformance test: engine cores that can be killed at once and started within milliseconds.

Started by rust_frontend/engine/tests/conformance.rs as `python -m tests.conformance.peer ENDPOINT FOLDER`. This
process imports everything once and forks a core for each `start` on its stdin; `kill`, `stop` and `cont` signal that
core. Every command is answered by a line on stdout. It ends, and its core with it, when stdin does.

A core runs the real FrontendLink. Token i of a request is a function of its first prompt token; the name says how it is
generated. Whatever of a request is not as it must be ends the core with status 3.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import zmq

from octavo.engine_core.frontend import FrontendEvent, FrontendGone
from octavo.engine_core.frontend_link import FrontendLink
from octavo.wire.codec import pack_tokens, unpack_tokens
from octavo.wire.frontend import AbortRequests, AddRequest, Delta, EngineInfo, Finish

__all__: list[str] = []

INFO = EngineInfo("scripted", 1 << 25, 1 << 25, 64, 16, 256, 1, "float32")
BROKEN = 3
PR_SET_PDEATHSIG = 1


def token(first: int, index: int) -> int:
    """Return the token at `index` of a request whose prompt starts with `first`; the Rust side knows it too."""
    return (first * 31 + index * 7) % 32_003


@dataclass
class Active:
    """A request that generates."""

    request: AddRequest
    first: int
    emitted: int


class ScriptedEngine:
    """Generates for all requests that are there, some tokens a step."""

    def __init__(self, link: FrontendLink, folder: Path) -> None:
        self._link = link
        self._folder = folder
        self._active: dict[int, Active] = {}
        self._step = 0

    async def run(self) -> None:
        """Generate until cancelled."""
        while True:
            if not self._active:
                self._take(await self._link.receive())
            while (event := self._link.receive_nowait()) is not None:
                self._take(event)
            self._step += 1
            deltas = [self._generate(active) for active in list(self._active.values())]
            self._link.deliver(self._step, deltas)
            fast = all(active.request.name == "fast" for active in self._active.values())
            await anyio.sleep(0 if fast else 0.001)

    def _take(self, event: FrontendEvent) -> None:
        match event:
            case AddRequest():
                self._add(event)
            case AbortRequests(ids):
                for id_ in ids:
                    self._active.pop(id_, None)
            case FrontendGone():
                self._active.clear()
                (self._folder / f"gone-{os.getpid()}").touch()

    def _add(self, request: AddRequest) -> None:
        known = self._active.get(request.id)
        if known is not None and known.request.attempt >= request.attempt:
            broken(f"attempt {request.attempt} after {known.request.attempt}")
        first = unpack_tokens(request.prompt[:4])[0]
        emitted = unpack_tokens(request.emitted)
        if request.name != "echo":
            prompt = unpack_tokens(request.prompt)
            if prompt != list(range(first, first + len(prompt))):
                broken("the prompt is not as it was sent")
            if emitted != [token(first, index) for index in range(len(emitted))]:
                broken("the ids emitted so far are not as they were sent")
        self._active[request.id] = Active(request, first, len(emitted))

    def _generate(self, active: Active) -> Delta:
        request, start = active.request, active.emitted
        if request.name == "echo":
            del self._active[request.id]
            return Delta(request.id, request.attempt, 0, request.prompt, Finish("stop"))
        end = min(start + (1 if request.name == "fast" else 3), request.sampling.max_tokens)
        active.emitted = end
        finish = None
        if end == request.sampling.max_tokens:
            del self._active[request.id]
            finish = Finish("length")
            if request.name == "fast":
                (self._folder / "generated").touch()
        tokens = pack_tokens([token(active.first, index) for index in range(start, end)])
        return Delta(request.id, request.attempt, start, tokens, finish)


def broken(what: str) -> None:
    """End this core at once: the other side sees it."""
    print(f"conformance peer: {what}", file=sys.stderr, flush=True)
    os._exit(BROKEN)


async def serve(endpoint: str, folder: Path) -> None:
    """Be an engine core."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = FrontendLink.connect(context, endpoint)
    link.ready(INFO)
    async with anyio.create_task_group() as group:
        group.start_soon(link.run)
        group.start_soon(ScriptedEngine(link, folder).run)


def start(endpoint: str, folder: Path) -> int:
    """Fork a core; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    os.close(0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        anyio.run(serve, endpoint, folder)
    finally:
        os._exit(1)


def obey(command: str, pid: int) -> str:
    """Signal the core and return the answer."""
    numbers = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cont": signal.SIGCONT}
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        return f"dead with status {os.waitstatus_to_exitcode(status)}"
    os.kill(pid, numbers[command])
    if command == "kill":
        os.waitpid(pid, 0)
    return command


def main() -> None:
    """Obey stdin until it ends."""
    endpoint, folder = sys.argv[1], Path(sys.argv[2])
    pid = 0
    for line in sys.stdin:
        command = line.strip()
        if command == "start":
            pid = start(endpoint, folder)
            print(pid, flush=True)
        else:
            print(obey(command, pid), flush=True)
            if command == "kill":
                pid = 0
    if pid:
        obey("kill", pid)


if __name__ == "__main__":
    main()
