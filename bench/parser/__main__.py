"""Run the parser's cost example in rounds, keep medians: python -m bench.parser --output bench/results/parser.json."""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo import __version__

__all__ = ["main", "rows", "table"]

_ROOT = Path(__file__).resolve().parents[2]
_COMMAND = [
    "cargo",
    "run",
    "--quiet",
    "--release",
    "--locked",
    "-p",
    "octavo-parser",
    "--example",
    "cost",
    "--",
    "--json",
]

#: What the project wants of them.
GOALS: Mapping[str, float] = {"plain_ns": 200.0, "angles_ms": 5.0}


def rows(rounds: Sequence[Mapping[str, Any]], versions: Mapping[str, str], date: str) -> list[dict[str, Any]]:
    """Return the list that bench/results keeps: medians over rounds, with their spread."""
    figures = [_figures(told) for told in rounds]
    found = []
    for name in figures[0]:
        values = [figure[name] for figure in figures]
        middle = statistics.median(values)
        unit = {"ns": "ns/token", "ms": "ms"}.get(name.rpartition("_")[2], "/token")
        row = {"name": name, "engine": "octavo-parser", "value": round(middle, 3), "unit": unit}
        row["spread"] = round((max(values) - min(values)) / middle, 4) if middle else 0.0
        goal = {"goal": GOALS[name]} if name in GOALS else {}
        found.append(row | goal | {"versions": dict(versions), "date": date})
    return found


def _figures(told: Mapping[str, Any]) -> dict[str, float]:
    flat = {f"{kind}_{unit}": value for kind, costs in told["tokens"].items() for unit, value in costs.items()}
    return flat | {"angles_ms": told["angles_ms"]}


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as text: one line for each kind of token."""
    values = {row["name"]: row["value"] for row in found}
    kinds = [name.removesuffix("_ns") for name in values if name.endswith("_ns")]
    lines = [f"{'token of':<24}{'ns':>8}{'allocations':>14}"]
    lines += [f"{kind:<24}{values[f'{kind}_ns']:>8.0f}{values[f'{kind}_allocations']:>14.2f}" for kind in kinds]
    return "\n".join([*lines, f"64 KiB of `<`: {values['angles_ms']:.2f} ms"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the file; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.parser", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args(argv)
    told = []
    for _ in range(arguments.rounds):
        done = subprocess.run(_COMMAND, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            return 2
        told.append(json.loads(done.stdout))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=_ROOT, capture_output=True, text=True).stdout
    versions = {"octavo": __version__, "commit": commit.strip()}
    found = rows(told, versions, datetime.date.today().isoformat())
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    missed = [row["name"] for row in found if "goal" in row and row["value"] > row["goal"]]
    if missed:
        print(f"beyond the goal: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
