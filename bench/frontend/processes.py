"""The three processes of the bench: the frontend under test, the scripted engine behind it, the load in front of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from octavo.config import FrontendConfig
from octavo.errors import ConfigError
from octavo.runfolder import run_folder

__all__ = ["Cpu", "Outcome", "Programs", "Stack", "allocations", "instructions", "running"]

_ROOT = Path(__file__).resolve().parents[2]
_START_S = 30.0
_STOP_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
#: jemalloc of the binary that counts: print all statistics at the end, as JSON.
_COUNT = {"_RJEM_MALLOC_CONF": "stats_print:true,stats_print_opts:J"}


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are."""

    frontend: str
    mock: str
    load: str
    counting: str | None  # the frontend with an allocator that counts
    valgrind: str | None

    @classmethod
    def find(cls, counting: str | None = None) -> Programs:
        """Look at the environment ($OCTAVO_FRONTEND, $OCTAVO_MOCK, $OCTAVO_LOAD), beside this Python, in target/.

        Raises ConfigError that says how to build what is missing.
        """
        if counting is None:
            default = _ROOT / "target" / "count" / "release" / "octavo-frontend"
            counting = str(default) if default.exists() else None
        elif not Path(counting).exists():
            raise ConfigError(f"there is no {counting}; build it with: {HOW_TO_COUNT}")
        return cls(
            _find("octavo-frontend"), _find("octavo-mock"), _find("octavo-load"), counting, shutil.which("valgrind")
        )


#: Makes the frontend whose allocator counts.
HOW_TO_COUNT = "cargo build --release -p octavo-server --features tikv-jemallocator/stats --target-dir target/count"


def _find(name: str) -> str:
    given = os.environ.get(name.upper().replace("-", "_"))
    built = [str(_ROOT / "target" / profile / name) for profile in ("release", "debug")]
    places = [given, shutil.which(name, path=sysconfig.get_path("scripts")), *built]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    crate = "octavo-server" if name == "octavo-frontend" else "octavo-mock"
    raise ConfigError(f"the program {name} is not there: run `cargo build --release -p {crate}`")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds that a process has computed: its own code, and the kernel on its behalf."""

    user: float = 0.0
    system: float = 0.0

    @property
    def total(self) -> float:
        """Both together."""
        return self.user + self.system

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.user - other.user, self.system - other.system)

    @classmethod
    def of(cls, pid: int) -> Cpu:
        """Read /proc/PID/stat."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)

    @classmethod
    def of_children(cls) -> Cpu:
        """Of all children that have ended and were waited for."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(usage.ru_utime, usage.ru_stime)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one load brought, and what each process computed meanwhile."""

    seconds: float
    requests: int
    tokens: int
    events: int
    ttft_ms: Mapping[str, float]
    total_ms: Mapping[str, float]
    late_ms: Mapping[str, float | None]
    wall: float  # of the whole load, warm-up and end included
    frontend: Cpu
    mock: Cpu
    load: Cpu


@dataclass(frozen=True, slots=True)
class Stack:
    """A frontend that serves, and its scripted engine."""

    programs: Programs
    folder: Path
    port: int
    frontend: int  # process id
    mock: int  # process id

    def load(self, path: str, bodies: Sequence[Mapping[str, Any]], *flags: str) -> Outcome:
        """Run octavo-load with the flags; raises ConfigError if any request failed."""
        file = self.folder / "bodies.jsonl"
        file.write_text("".join(json.dumps(body) + "\n" for body in bodies))
        before = [Cpu.of(self.frontend), Cpu.of(self.mock), Cpu.of_children()]
        began = time.monotonic()
        command = [self.programs.load, "--address", f"127.0.0.1:{self.port}", "--path", path, "--bodies", str(file)]
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=300)
        wall = time.monotonic() - began
        after = [Cpu.of(self.frontend), Cpu.of(self.mock), Cpu.of_children()]
        if done.returncode != 0:
            raise ConfigError(f"octavo-load failed: {done.stderr.strip()}")
        told = json.loads(done.stdout)
        if told["failed"] or not told["requests"]:
            raise ConfigError(
                f"{told['failed']} of {told['failed'] + told['requests']} requests failed: {told['error']}"
            )
        spent = [late - early for late, early in zip(after, before, strict=True)]
        return Outcome(
            told["seconds"],
            told["requests"],
            told["tokens"],
            told["events"],
            told["ttft_ms"],
            told["total_ms"],
            told["late_ms"],
            wall,
            *spent,
        )


@contextlib.contextmanager
def running(
    programs: Programs,
    tokenizer: Path,
    *flags: str,
    log: Path | None = None,
    under: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    ca: Path | None = None,
) -> Iterator[Stack]:
    """Start a frontend as `octavo serve` does, and octavo-mock with the flags; stop both at the end.

    log: where the frontend's stderr goes; with it, the frontend that counts is started, and its statistics go there.
    under: a command that runs the frontend's. settings: further fields of the frontend's configuration. ca: who signed
    the frontend's certificate, where the settings say TLS.
    """
    with (
        socket.create_server(("127.0.0.1", 0), backlog=4096) as listener,
        run_folder() as folder,
        contextlib.ExitStack() as stack,
    ):
        endpoint = f"ipc://{folder}/frontend.sock"
        config = FrontendConfig(
            listen_fd=listener.fileno(),
            engine_endpoints=[endpoint],
            tokenizer_dir=str(tokenizer),
            served_model_names=["mock"],
            seed=1,
            max_open_requests=8192,
            **({"log_level": "warning"} | dict(settings or {})),
        )
        (folder / "frontend.json").write_bytes(msgspec.json.encode(config))
        program = programs.counting if log and programs.counting else programs.frontend
        stderr = stack.enter_context((log or folder / "frontend.log").open("w"))
        command = [*under, program, "--config", str(folder / "frontend.json")]
        env = os.environ | (_COUNT if log else {})
        fds = (listener.fileno(),)
        frontend = stack.enter_context(_process(command, "listening", stderr, env=env, pass_fds=fds))
        errors = stack.enter_context((folder / "mock.log").open("w"))
        command = [programs.mock, "--endpoint", endpoint, "--log-level", "warning", *flags]
        mock = stack.enter_context(_process(command, "ready", errors))
        port = listener.getsockname()[1]
        _wait_ready(port, None if ca is None else ssl.create_default_context(cafile=ca))
        yield Stack(programs, folder, port, frontend, mock)


@contextlib.contextmanager
def _process(command: Sequence[str], event: str, stderr: IO[str], **options: Any) -> Iterator[int]:
    """Start a process, wait for the event on its stdout, yield its id; end it with SIGTERM, or SIGKILL if need be."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, **options
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if f'"event":"{event}"' not in line:
                raise ConfigError(f"{command[0]} did not start: {Path(stderr.name).read_text().strip()[-2000:]}")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            process.kill()


def _wait_ready(port: int, tls: ssl.SSLContext | None) -> None:
    def connect() -> http.client.HTTPConnection:
        if tls is None:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)

    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with contextlib.closing(connect()) as connection:
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.02)
    raise ConfigError(f"the frontend is not ready after {_START_S:.0f} s")


def allocations(log: Path) -> int:
    """Return how many allocations a frontend that has ended made, by the statistics that its allocator printed."""
    text = log.read_text()
    begin = re.search(r'^\{\s*"jemalloc"', text, re.MULTILINE)
    if begin is None:
        raise ConfigError(f"the frontend's allocator does not count; build one that does: {HOW_TO_COUNT}")
    merged = json.loads(text[begin.start() : text.rfind("}") + 1])["jemalloc"]["stats.arenas"]["merged"]
    return int(merged["small"]["nrequests"]) + int(merged["large"]["nrequests"])


def instructions(profile: Path) -> int:
    """Return how many instructions a process executed outside the kernel, by what callgrind wrote at its end."""
    found = re.search(r"^(?:summary|totals): (\d+)", profile.read_text(errors="replace"), re.MULTILINE)
    if found is None:
        raise ConfigError(f"valgrind wrote no sum into {profile}")
    return int(found[1])
