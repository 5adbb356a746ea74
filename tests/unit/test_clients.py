"""The pages that `make clients` and `make lm-eval` write: their tables, and that they are of what is pinned."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.clients.page import MARK, Row, table, write_page

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests" / "e2e" / "clients"


def rows(client: str, step: str, went: str) -> list[Row]:
    return [Row(client, "1.0", step, went, scheme) for scheme in ("http", "https")]


def test_a_cell_says_over_what_a_step_passed(tmp_path: Path) -> None:
    failed = [Row("a", "1.0", "tools", "ok", "http"), Row("a", "1.0", "tools", "Error: x", "https")]
    found = table([*rows("b", "chat", "ok"), *rows("a", "chat", "ok"), *failed])
    lines = found.splitlines()
    assert lines[2] == "| a | 1.0 | – | http, https | – | http, **not https** | – | – |"
    assert lines[3] == "| b | 1.0 | – | http, https | – | – | – | – |"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARK}old\n")
    write_page(page, rows("b", "chat", "ok"))
    assert page.read_text().startswith(f"before\n{MARK}\n| client |")
    assert "old" not in page.read_text()


def told() -> dict[str, str]:
    """The versions of docs/clients.md's table, by client."""
    _, _, written = (ROOT / "docs" / "clients.md").read_text().partition(MARK)
    cells = [line.split("|")[1:3] for line in written.splitlines() if line.startswith("| ")]
    return {client.strip(): version.strip() for client, version in cells[1:]}


def test_the_page_is_of_the_versions_that_are_pinned() -> None:
    lock = (CLIENTS / "requirements.lock").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)$", lock, re.MULTILINE))
    node = json.loads((CLIENTS / "node" / "package-lock.json").read_text())["packages"]
    found = told()
    assert len(found) == 9
    for client, version in found.items():
        name = client.removesuffix(" (Node)")
        in_node = client.endswith("(Node)") or client == "ai"
        assert version == (node[f"node_modules/{name}"]["version"] if in_node else pinned[name]), client


@pytest.mark.parametrize(("page", "mark"), [("clients.md", MARK), ("lm-eval.md", "<!-- written by make lm-eval -->\n")])
def test_nothing_failed_when_a_page_was_written(page: str, mark: str) -> None:
    _, _, written = (ROOT / "docs" / page).read_text().partition(mark)
    lines = [line for line in written.splitlines() if line.startswith("| ")]
    assert len(lines) > 5
    assert "**not" not in written
    if page == "lm-eval.md":
        assert all(line.endswith("| 0 |") for line in lines[1:])
