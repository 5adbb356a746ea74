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


def check(folder: Path, reason: str) -> str:
    """Type-check a module that uses another package; return what mypy said."""
    types = folder / ".types"
    types.mkdir(exist_ok=True)
    if not (types / "octavo").exists():
        (types / "octavo").symlink_to(ROOT / "python")
    (folder / "planted.py").write_text(PLANTED.format(reason=reason))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "planted.py"]
    environment = {**os.environ, "MYPYPATH": ".types"}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    return ended.stdout + ended.stderr


def test_a_planted_error_across_packages_is_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert "Success" in check(tmp_path, '"client"')
    assert 'incompatible type "int"; expected "str"' in check(tmp_path, "7")
