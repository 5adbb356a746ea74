from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

PAGE = Path(__file__).parents[3] / "docs" / "actors.md"


def test_the_example_in_the_docs_runs_and_prints_what_the_docs_say(tmp_path: Path) -> None:
    page = PAGE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    program = tmp_path / "example.py"
    program.write_text(blocks[0])
    done = subprocess.run(
        [sys.executable, "-W", "error", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    logged, printed = re.findall(r"`([^`]+)`", page.split("```")[2].splitlines()[2])
    assert printed == done.stdout.strip()
    assert logged in done.stderr


def test_every_module_is_in_the_table() -> None:
    modules = {path.stem for path in (PAGE.parents[1] / "python" / "actors").glob("*.py")} - {"__init__"}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)) == modules
