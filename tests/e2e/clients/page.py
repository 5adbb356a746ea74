"""docs/clients.md: the table of clients and what they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Row", "table", "write_page"]

STEPS = ("models", "chat", "stream", "tools", "structured", "errors")
MARK = "<!-- written by make clients -->\n"


@dataclass(frozen=True)
class Row:
    """How one step of one client went: "ok", or what was raised."""

    client: str
    version: str
    step: str
    went: str
    scheme: str


def table(rows: Sequence[Row]) -> str:
    """Return the table of all clients, by name: a cell says over what a step passed."""
    lines = [f"| client | version | {' | '.join(STEPS)} |", "|---" * (2 + len(STEPS)) + "|"]
    for client in sorted({row.client for row in rows}):
        own = [row for row in rows if row.client == client]
        cells = [_cell([row for row in own if row.step == step]) for step in STEPS]
        lines.append(f"| {client} | {own[0].version} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    passed = [row.scheme for row in rows if row.went == "ok"]
    failed = [f"**not {row.scheme}**" for row in rows if row.went != "ok"]
    return ", ".join([*passed, *failed])


def write_page(path: Path, rows: Sequence[Row]) -> None:
    """Put the table behind the mark; all in front of it stays."""
    before, mark, _ = path.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{path} has no line {MARK.strip()}"
    path.write_text(before + MARK + "\n" + table(rows), encoding="utf-8")
