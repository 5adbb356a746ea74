"""A missing tool gives one line that says what to install."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("CARGO=no-such-cargo", "install Rust"),
        ("PYTHON=no-such-python", "install python3"),
        ("CC=no-such-cc", "install gcc"),
    ],
)
def test_a_missing_tool_is_one_line(override: str, part: str) -> None:
    ended = subprocess.run(
        ["make", "--no-print-directory", "tools", override], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode != 0
    assert part in ended.stdout
    assert len(ended.stdout.splitlines()) == 1, ended.stdout


def test_all_tools_are_here() -> None:
    ended = subprocess.run(["make", "tools"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stdout
