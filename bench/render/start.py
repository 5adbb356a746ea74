"""How long octavo-renderer takes until it answers."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["find", "ready"]

#: Starts that are measured; the files of the model are in the system's cache from the first on.
_STARTS = 5
_LONGEST_S = 60.0


def find() -> Path | None:
    """Return the program: the one beside this Python, or else the one that the shell would find."""
    own = Path(sys.executable).with_name("octavo-renderer")
    if own.is_file():
        return own
    found = shutil.which("octavo-renderer")
    return Path(found) if found else None


def ready(program: Path, folder: Path) -> float:
    """Return the seconds from the start of the program to its word that it is ready: the median of some starts."""
    return statistics.median(_start(program, folder) for _ in range(_STARTS))


def _start(program: Path, folder: Path) -> float:
    began = time.perf_counter()
    command = [str(program), str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if "is ready at" in line:
                    return time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(_LONGEST_S)
    raise SystemExit(f"bench.render: {program} left with {process.returncode} before it was ready")
