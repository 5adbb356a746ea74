"""Every kernel compiles for Hopper."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import octavo.kernels.triton


@pytest.mark.timeout(400)
def test_every_kernel_compiles(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.kernels.triton.compile_all"]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    source = "".join(path.read_text() for path in Path(octavo.kernels.triton.__path__[0]).glob("*.py"))
    assert len(done.stdout.split()) == source.count("_kernel(\n")
