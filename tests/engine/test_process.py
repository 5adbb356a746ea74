"""The engine core as a process, with a frontend that speaks the real wire over a real socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from octavo.engine_core.session import Kind, Role, Session, Verdict
from octavo.wire import frontend as wire
from octavo.wire.codec import CORE, FRONTEND, HEADER
from octavo.wire.version import PROTOCOL, VERSION
from tests.engine.fake_worker import reference
from tests.engine.harness import request
from tests.engine.memory_frontend import BODY, engine_config

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 40.0


class WireFrontend:
    """A ROUTER that keeps a session with one core and collects what it says."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(endpoint)
        self._session = Session(Role.FRONTEND, 11, 1 << 20)
        self._peer = b""
        self.messages: list[wire.CoreMessage] = []

    def send(self, message: wire.FrontendMessage) -> None:
        """Send a numbered message."""
        body = FRONTEND.encode(message)
        self._post(self._session.number(len(body), time.monotonic()), message)

    def until(self, condition: Callable[[list[wire.CoreMessage]], bool]) -> None:
        """Serve the session until a condition on what came holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition(self.messages):
            assert time.monotonic() < deadline, f"still waiting after {self.messages}"
            if self._socket.poll(50):
                self._receive(self._socket.recv_multipart())
            if self._peer and self._session.ack_due(time.monotonic()):
                header, ack = self._session.ack(time.monotonic())
                self._post(header, ack)

    def close(self) -> None:
        """Close."""
        self._socket.close(0)
        self._context.term()

    def _receive(self, frames: list[bytes]) -> None:
        self._peer, header, message = frames[0], HEADER.decode(frames[1]), CORE.decode(frames[2])
        now, size = time.monotonic(), len(frames[2])
        kind = {wire.Hello: Kind.HELLO, wire.Ack: Kind.ACK}.get(type(message), Kind.NUMBERED)
        sent = message.sent if isinstance(message, wire.Ack) else 0
        verdict = self._session.receive(header, kind, size, now, sent=sent)
        if verdict is Verdict.ASKED:
            self._post(self._session.open(header, now), wire.Welcome(PROTOCOL, VERSION))
        elif verdict is Verdict.DELIVER:
            self._session.consumed(self._session.openings, size)
            self.messages.append(message)
            if isinstance(message, wire.Goodbye):
                header, ack = self._session.ack(now)
                self._post(header, ack)

    def _post(self, header: wire.Header, message: wire.FrontendMessage) -> None:
        self._socket.send_multipart([self._peer, HEADER.encode(header), FRONTEND.encode(message)])


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[WireFrontend]:
    made = WireFrontend(f"ipc://{tmp_path}/frontend.sock")
    yield made
    made.close()


def start(folder: Path, model: str = "fake", **changes: object) -> subprocess.Popen[str]:
    """Start a core as the supervisor does: its stdin is our lifeline."""
    config = engine_config(folder, model, **{"frontend_endpoint": f"ipc://{folder}/frontend.sock", **changes})
    (folder / "engine.json").write_bytes(msgspec.json.encode(config))
    argv = [sys.executable, "-m", "octavo.engine_core", "--config", str(folder / "engine.json"), "--body", BODY]
    return subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ending(core: subprocess.Popen[str]) -> str:
    """Wait until a core has left by itself, with its lifeline intact; return its log."""
    core.wait(TIMEOUT_S)
    assert core.stderr is not None
    return core.stderr.read()


def is_ready(messages: list[wire.CoreMessage]) -> bool:
    return any(isinstance(message, wire.EngineReady) for message in messages)


def tokens_of(messages: list[wire.CoreMessage], number: int) -> tuple[list[int], str | None]:
    """Return what came for a request, each delta where the one before ended."""
    tokens: list[int] = []
    finish = None
    for message in messages:
        for delta in message.items if isinstance(message, wire.Deltas) else ():
            if delta.id == number:
                assert delta.start == len(tokens)
                tokens += array("i", delta.tokens)
                finish = delta.finish.reason if delta.finish else None
    return tokens, finish


def test_serves_and_says_goodbye(tmp_path: Path, frontend: WireFrontend) -> None:
    with start(tmp_path) as core:
        frontend.until(is_ready)
        messages = {number: request(number, [number] * 9, 12) for number in (1, 2, 3)}
        for message in messages.values():
            frontend.send(message)
        frontend.until(lambda seen: all(tokens_of(seen, number)[1] for number in messages))
        for number, message in messages.items():
            assert tokens_of(frontend.messages, number) == reference([number] * 9, message.sampling, 400)
        core.send_signal(signal.SIGTERM)
        frontend.until(lambda seen: isinstance(seen[-1], wire.Goodbye))
        log = ending(core)
        assert core.returncode == 0, log
    assert not list(tmp_path.glob("worker-*")), "sockets of workers are removed"


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        ("fake?model_error=1", {}, "the fake model cannot be loaded"),
        ("fake", {"max_model_len": 400, "kv_cache_bytes": 40000}, "--max-model-len 400 is larger than the KV pool"),
    ],
)
def test_the_last_line_says_what_is_final(
    tmp_path: Path, frontend: WireFrontend, model: str, changes: dict[str, object], words: str
) -> None:
    with start(tmp_path, model, **changes) as core:
        frontend.until(lambda seen: any(isinstance(m, wire.EngineFault) and not m.restarting for m in seen))
        frontend.until(lambda seen: isinstance(seen[-1], wire.Goodbye))
        log = ending(core)
    assert core.returncode == 2
    assert words in log.splitlines()[-1]
    assert "Traceback" not in log


def test_leaves_with_its_workers_when_the_parent_is_gone(tmp_path: Path, frontend: WireFrontend) -> None:
    with start(tmp_path) as core:
        frontend.until(is_ready)
        workers = psutil.Process(core.pid).children(recursive=True)
        assert workers
        assert core.stdin is not None
        core.stdin.close()
        core.wait(TIMEOUT_S)
        _, alive = psutil.wait_procs(workers, timeout=TIMEOUT_S)
        assert not alive
        assert core.stderr is not None
        core.stderr.close()


def test_a_killed_core_leaves_no_worker(tmp_path: Path, frontend: WireFrontend) -> None:
    with start(tmp_path, "fake?delay_ms=20", tensor_parallel_size=2) as core:
        frontend.until(is_ready)
        frontend.send(request(1, [1] * 9, 300))
        frontend.until(lambda seen: len(tokens_of(seen, 1)[0]) > 2)
        workers = psutil.Process(core.pid).children(recursive=True)
        assert len(workers) == 2
        os.kill(core.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(workers, timeout=TIMEOUT_S)
        assert not alive
