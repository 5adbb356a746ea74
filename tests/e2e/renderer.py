"""A running octavo-renderer for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["Renderer", "program", "rendering"]

READY = "octavo-renderer is ready at "


@dataclass
class Renderer:
    """A running renderer."""

    url: str
    process: subprocess.Popen[str]


def program() -> str:
    """Return the path of octavo-renderer: $OCTAVO_RENDERER, beside this Python, or on the PATH; skips without one."""
    beside = shutil.which("octavo-renderer", path=sysconfig.get_path("scripts"))
    found = os.environ.get("OCTAVO_RENDERER") or beside or shutil.which("octavo-renderer")
    if found is None:
        pytest.skip("octavo-renderer is not installed: make build, or set OCTAVO_RENDERER")
    return found


@contextlib.contextmanager
def rendering(model: Path, *flags: str) -> Iterator[Renderer]:
    """Run a renderer until the end of the block; it must end with exit code 0 on SIGTERM."""
    command = [program(), str(model), "--port", "0", "--log-level", "error", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(READY), line
        yield Renderer(line.removeprefix(READY).strip(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
