"""Every block of docs/examples.md runs as it stands, but for the address."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.e2e.server import Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "examples.md"
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"


def test_the_page_has_blocks_of_both_kinds() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds.count("bash") >= 6 and kinds.count("python") >= 3
    assert all(ADDRESS in text for _, text in BLOCKS)


@pytest.mark.parametrize(("kind", "text"), BLOCKS, ids=[textwrap.shorten(text, 60) for _, text in BLOCKS])
def test_a_block_runs(surface: Server, capfd: pytest.CaptureFixture[str], kind: str, text: str) -> None:
    text = text.replace(ADDRESS, surface.url)
    if kind == "bash":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True, timeout=60)
    else:
        exec(compile(text, str(PAGE), "exec"), {"__name__": "__main__"})
    printed = capfd.readouterr().out
    assert printed.strip()
    assert '"error":' not in printed
