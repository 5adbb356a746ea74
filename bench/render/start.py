"""How long octavo-renderer takes until it answers, and what memory it takes for that."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path

__all__ = ["Start", "find", "ready"]

#: Starts that are measured; the files of the model are in the system's cache from the first on.
_STARTS = 5


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the program to its word that it is ready."""

    seconds: float
    cpu_s: float  # of all threads, its end included
    peak_mb: float  # of resident memory


def find() -> Path | None:
    """Return the program: the one beside this Python, or else the one that the shell would find."""
    own = Path(sys.executable).with_name("octavo-renderer")
    if own.is_file():
        return own
    found = shutil.which("octavo-renderer")
    return Path(found) if found else None


def ready(program: Path, folder: Path) -> Start:
    """Return the medians of some starts."""
    starts = [astuple(_start(program, folder)) for _ in range(_STARTS)]
    return Start(*map(statistics.median, zip(*starts, strict=True)))


def _start(program: Path, folder: Path) -> Start:
    began = time.perf_counter()
    command = [str(program), str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = any("is ready at" in line for line in process.stdout)
        passed = time.perf_counter() - began
        # What wait4 says of memory is this process's own, where that is more.
        peak = re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))
        process.terminate()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if not ready or peak is None:
        raise SystemExit(f"bench.render: {program} left with {process.returncode} before it was ready")
    return Start(passed, used.ru_utime + used.ru_stime, int(peak[1]) / 1024)
