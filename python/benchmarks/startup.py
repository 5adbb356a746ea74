"""`octavo bench startup`: from the start of a server's process to its first answer, by what its log says."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from octavo.errors import ConfigError, OctavoError

__all__ = [
    "Phase",
    "Start",
    "add_command",
    "answers",
    "ends_on_sigterm",
    "free_port",
    "phases",
    "start_once",
    "table",
    "tree_rss_mb",
]

_EXAMPLES = """\
examples:
  octavo bench startup -- octavo serve ./model --port {port}
  octavo bench startup --repeat 5 --ready-path /health -- llama-server -m model.gguf --port {port}

What follows -- is started --repeat times, each time on a free port in place of {port}, and stopped with SIGINT once
--ready-path answers 200. Phases are the lines of its log: each lasts until the next.
"""

STOP_TIMEOUT_S = 30.0
POLL_S = 0.005
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Phase:
    """The time from one line of the log to the next."""

    name: str
    seconds: float


@dataclass(slots=True)
class Start:
    """One start: when it was ready and what it logged, in seconds after the process was started."""

    ready_s: float = 0.0
    rss_mb: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list)


def add_command(commands: Any, raw: dict[str, Any]) -> None:
    """Add `startup` to the commands of `octavo bench`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "startup",
        help="where time goes from the start of a server to its readiness",
        description="Start a server several times and report how long it takes to be ready, by phases of its log.",
        usage="octavo bench startup [FLAGS] -- COMMAND …",
        epilog=_EXAMPLES,
        **raw,
    )
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="starts (default: 3)")
    parser.add_argument(
        "--ready-path", default="/health", metavar="PATH", help="ready when this answers 200 (default: /health)"
    )
    parser.add_argument("--timeout-sec", type=float, default=600.0, metavar="S", help="give up after (default: 600)")
    parser.add_argument("--output", default=None, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("server", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the server, with {port} in it")
    parser.set_defaults(run=_run, parser=parser)


def _run(given: dict[str, Any]) -> int:
    command = [word for i, word in enumerate(given["server"]) if i or word != "--"]
    if not any("{port}" in word for word in command):
        raise ConfigError("end with: -- COMMAND ... --port {port}")
    if given["repeat"] < 1:
        raise ConfigError(f"--repeat {given['repeat']} must be at least 1", "repeat")
    starts = []
    with ends_on_sigterm():
        for number in range(given["repeat"]):
            starts.append(start_once(command, given["ready_path"], given["timeout_sec"]))
            print(f"start {number + 1}: ready after {starts[-1].ready_s:.2f} s", file=sys.stderr)
    print(table(starts))
    if given["output"] is not None:
        rows = [{"ready_s": s.ready_s, "rss_mb": s.rss_mb, "phases": [_row(p) for p in phases(s)]} for s in starts]
        try:
            Path(given["output"]).write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
        except OSError as error:
            raise OctavoError(f"cannot write {given['output']}: {error}") from None
    return 0


def _row(phase: Phase) -> dict[str, Any]:
    return {"name": phase.name, "seconds": phase.seconds}


@contextmanager
def ends_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, so that what it started is stopped on the way out."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_once(command: Sequence[str], ready_path: str, timeout_s: float) -> Start:
    """Start the command, wait until it is ready, stop it. Raises OctavoError with its last lines if it is not."""
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    start = Start()
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_heed_sigint,
        )
    except OSError as error:
        raise OctavoError(f"cannot start {words[0]}: {error}") from None
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, began, start.lines), daemon=True)
    reader.start()
    try:
        while not answers(port, ready_path):
            if process.poll() is not None:
                reader.join(STOP_TIMEOUT_S)
                raise OctavoError(f"{words[0]} ended with {process.returncode}:\n" + _tail(start.lines))
            if time.monotonic() - began > timeout_s:
                raise OctavoError(f"{words[0]} was not ready within {timeout_s:g} s:\n" + _tail(start.lines))
            time.sleep(POLL_S)
        start.ready_s = time.monotonic() - began
        start.rss_mb = tree_rss_mb(process.pid)
    finally:
        _stop(process)
    reader.join(STOP_TIMEOUT_S)
    return start


def _read(lines: IO[str], began: float, into: list[tuple[float, str]]) -> None:
    with lines:
        into.extend((time.monotonic() - began, line.rstrip()) for line in lines)


def _tail(lines: Sequence[tuple[float, str]]) -> str:
    return "\n".join(line for _, line in lines[-20:])


def answers(port: int, path: str) -> bool:
    """Return whether GET of the path on the port answers 200."""
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(request.encode())
            return peer.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


def _heed_sigint() -> None:
    """Undo, in a child, what a shell does to jobs in the background: they and their children ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tree_rss_mb(pid: int) -> float:
    """Return the resident memory of a process and all below it, in MiB; pages that they share count once.

    Reads proportional set sizes from /proc; 0 where there is no /proc.
    """
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue
        parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(status.parent.name))
    total, todo = 0, [pid]
    while todo:
        now = todo.pop()
        todo += parents.get(now, [])
        try:
            rollup = Path(f"/proc/{now}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


def phases(start: Start) -> list[Phase]:
    """Split a start at the lines of its log up to its readiness; the first phase is what precedes all lines."""
    marks = [(0.0, "process starts"), *((at, _name(line)) for at, line in start.lines if at <= start.ready_s and line)]
    ends = [at for at, _ in marks[1:]] + [start.ready_s]
    return [Phase(name, end - at) for (at, name), end in zip(marks, ends, strict=True)]


def _name(line: str) -> str:
    """Name a phase by its line without the clock; figures differ between starts and become #."""
    text = _CLOCK.sub("", line)
    return " ".join(_NUMBER.sub("#", text).split())[:72]


def table(starts: Sequence[Start], least_s: float = 0.02) -> str:
    """Lay out the median of each phase over all starts; phases shorter than `least_s` are summed up."""
    ready = [start.ready_s for start in starts]
    spread = max(ready) - min(ready)
    seconds: dict[str, list[float]] = {}
    for start in starts:
        mine: dict[str, float] = {}
        for phase in phases(start):
            mine[phase.name] = mine.get(phase.name, 0.0) + phase.seconds
        for name, value in mine.items():
            seconds.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    lines = [f"{value:>9.3f} s  {name}" for name, value in medians.items() if value >= least_s]
    rest = sum(value for value in medians.values() if value < least_s)
    memory = statistics.median(start.rss_mb for start in starts)
    return "\n".join(
        [
            *lines,
            f"{rest:>9.3f} s  shorter phases",
            f"{statistics.median(ready):>9.3f} s  until ready (median of {len(starts)}; spread {spread:.3f} s)",
            f"{memory:>9.1f} MiB of memory when ready",
        ]
    )
