"""The command: rounds, a table, bench/results/scheduler.json."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.compare.machine import describe
from bench.scheduler.measure import deltas_per_second, lookup_seconds, step_seconds
from octavo import __version__

_OUTPUT = Path(__file__).resolve().parents[2] / "bench" / "results" / "scheduler.json"
_RUNNING = (1, 64, 256, 1024)
_WAITING = (0, 1_000, 100_000)
#: What issue and architecture ask for: name -> (goal, whether less is better).
GOALS = {
    "step_us/256/0": (300.0, True),
    "step_us/256/1000": (300.0, True),
    "step_us/256/100000": (300.0, True),
    "lookup_100k_ms": (2.0, True),
    "deltas_tokens_s": (100_000.0, False),
}


def _round(quick: bool) -> dict[str, float]:
    """Measure everything once."""
    steps = 32 if quick else 400
    found: dict[str, float] = {}
    for running in _RUNNING if not quick else (1, 64):
        for waiting in _WAITING if not quick else (0, 1_000):
            found[f"step_us/{running}/{waiting}"] = statistics.median(step_seconds(running, waiting, steps)) * 1e6
    whole, lookup = lookup_seconds(10_000 if quick else 100_000, 5)
    found |= {"lookup_100k_ms": lookup * 1e3, "admission_100k_ms": whole * 1e3}
    found["deltas_tokens_s"] = deltas_per_second(64 if quick else 256, steps)
    return found


def _rows(rounds: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    rows = []
    for name in rounds[0]:
        values = [figures[name] for figures in rounds]
        middle = statistics.median(values)
        row: dict[str, Any] = {"name": name, "engine": "octavo-core", "value": round(middle, 3), "rounds": len(values)}
        row["spread"] = round((max(values) - min(values)) / middle, 4)
        if name in GOALS:
            goal, less = GOALS[name]
            row |= {"goal": goal, "met": middle <= goal if less else middle >= goal}
        rows.append(row | {"version": __version__, "date": datetime.now(UTC).date().isoformat()})
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scheduler",
        description="Measure the engine core before a worker that answers at once: step_us/RUNNING/WAITING.",
    )
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of everything; the median counts (3)")
    parser.add_argument("--output", type=Path, default=_OUTPUT, help="where the list goes (bench/results/...)")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    args = parser.parse_args(argv)
    rows = _rows([_round(args.quick) for _ in range(max(1, args.rounds))])
    for row in rows:
        goal = f"   goal {row['goal']:g}: {'met' if row['met'] else 'missed'}" if "goal" in row else ""
        print(f"{row['name']:<24}{row['value']:>14,.1f}   ±{row['spread'] / 2:.0%}{goal}")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps([*rows, {"name": "machine", "value": describe()}], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
