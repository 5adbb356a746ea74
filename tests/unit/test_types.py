"""The type checker sees across packages: a planted error is found, and the same code without it passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = """\
from octavo.wire.frontend import AbortRequests

AbortRequests(ids=(1,), reason={reason})
"""


def check(reason: str) -> str:
    """Type-check code that uses another package, as `make lint` does and with what it found; return what mypy said."""
    types = ROOT / ".types"
    types.mkdir(exist_ok=True)
    if not (types / "octavo").exists():
        (types / "octavo").symlink_to("../python")
    command = [sys.executable, "-m", "mypy", "-c", PLANTED.format(reason=reason)]
    environment = {**os.environ, "MYPYPATH": ".types"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)
    return ended.stdout + ended.stderr


def test_a_planted_error_across_packages_is_found() -> None:
    pytest.importorskip("mypy")
    assert "Success" in check('"client"')
    assert 'incompatible type "int"; expected "str"' in check("7")
