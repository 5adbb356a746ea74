"""A real `octavo serve` for tests: started, watched, stopped, and its process tree looked at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from openai import OpenAI

__all__ = ["Server", "default_signals", "running", "wait_for"]

READY = "octavo is ready at "
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


def default_signals() -> None:
    """Let a new process meet Ctrl-C and a hang-up as in a terminal: under nohup, or behind `&`, they are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until the condition holds; fails the test, saying what was waited for, when it does not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not in {timeout_s} s: {what}"
        time.sleep(0.02)


@dataclass
class Server:
    """A running server. `log` grows as it writes."""

    process: subprocess.Popen[str]
    url: str = ""
    grpc: str = ""  # host:port, where a test has read it
    log: list[str] = field(default_factory=list)
    _clients: list[OpenAI] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def _collect(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def client(self) -> OpenAI:
        """Return an official client that does not try again by itself."""
        client = OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=200)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close clients and pipes of a server that has ended."""
        for client in self._clients:
            client.close()
        if self._reader is not None:
            self._reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def get(self, path: str) -> httpx.Response:
        """GET a path."""
        return httpx.get(f"{self.url}{path}", timeout=10)

    def metric(self, name: str) -> float:
        """Return a metric without labels, or the sum over its labels."""
        found = [line for line in self.get("/metrics").text.splitlines() if line.startswith(name)]
        values = [float(line.rsplit(" ", 1)[1]) for line in found if line[len(name)] in " {"]
        assert values, f"no metric {name}"
        return sum(values)

    def pid(self, part: str) -> int:
        """Return the process id of a part: "frontend", "engine", "worker-0", …"""
        found = self.pids(part)
        assert len(found) == 1, f"{part}: {found}"
        return found[0]

    def pids(self, part: str) -> list[int]:
        """Return the process ids of a part that live now."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if child.environ().get("OCTAVO_NAME") == part and child.status() != psutil.STATUS_ZOMBIE:
                        found.append(child.pid)
        return found

    def tree(self) -> list[psutil.Process]:
        """Return the server and all its descendants."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def kill(self, part: str) -> int:
        """Kill a part as `kill -9` does and return the process id it had."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        return pid

    def ready(self) -> bool:
        """Whether /ready says 200."""
        with contextlib.suppress(httpx.HTTPError):
            return self.get("/ready").status_code == 200
        return False

    def text(self) -> str:
        """Return the log so far."""
        return "".join(self.log)

    def logged(self, words: str, times: int = 1) -> None:
        """Wait until the log has said something so often."""
        wait_for(lambda: self.text().count(words) >= times, 20, f"{times} times {words!r} in the log")


def start(model: Path | str, *flags: str, env: dict[str, str] | None = None, new_session: bool = False) -> Server:
    """Start a server without waiting for it; in a new session it has no terminal, as a service has none."""
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", "0", *flags]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        start_new_session=new_session,
    )
    return Server(process)


def stop(server: Server) -> int:
    """Stop a server as Ctrl-C does, and in any case; return its exit code."""
    process = server.process
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for part in server.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        raise
    finally:
        server.close()


@contextlib.contextmanager
def running(
    model: Path | str,
    *flags: str,
    env: dict[str, str] | None = None,
    exit_code: int = 0,
    new_session: bool = False,
) -> Iterator[Server]:
    """Run a server until the end of the block; it must be ready in time and end with the exit code."""
    server = start(model, *flags, env=env, new_session=new_session)
    try:
        assert server.process.stdout is not None
        timer = threading.Timer(START_TIMEOUT_S, server.process.kill)
        timer.start()
        line = server.process.stdout.readline()
        timer.cancel()
        assert line.startswith(READY), f"not ready: {server.text()}"
        server.url = line.removeprefix(READY).strip()
        yield server
    except BaseException:
        print(server.text(), file=sys.stderr)
        stop(server)
        raise
    code = stop(server)
    assert code == exit_code, f"exit code {code}: {server.text()}"
