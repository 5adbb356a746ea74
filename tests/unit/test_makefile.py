"""A missing tool gives one line that says what to install."""

from __future__ import annotations

import re
import subprocess
import tomllib
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


def test_the_oldest_transformers_is_named_alike() -> None:
    """In pyproject.toml, in the command that tests it, and in the docs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = next(entry for entry in project["dependencies"] if entry.startswith("transformers"))
    tested = re.search(r"^OLDEST_TRANSFORMERS := ([\d.]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tested
    assert f"{wanted}.0" == f"transformers>={tested[1]}"
    assert f"({tested[1]})" in (ROOT / "docs" / "releasing.md").read_text()
