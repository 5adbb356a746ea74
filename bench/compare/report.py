"""Rounds -> medians, ratios and their spread: one table, one JSON file, one plot."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.compare.rounds import UNITS, Work
from octavo.benchmarks.svg import Bar, Bars

if TYPE_CHECKING:
    from bench.compare.machine import Noise

__all__ = ["Rounds", "charts", "markdown", "rows", "spread", "write"]

#: engine -> one value for each name, round by round
Rounds = Mapping[str, Sequence[Mapping[str, float]]]

_HEADS = {
    "ttft_ms": "TTFT, ms",
    "stream1_tok_s": "1 stream, tok/s",
    "stream16_tok_s": "16 streams, tok/s",
    "ready_s": "ready, s",
    "rss_mb": "memory, MiB",
}


_LEGEND = (
    "TTFT and 1 stream: one request at a time; the rate is after the first token. 16 streams: output tokens of all over"
    " the whole time, prefill included. Ready: from the start of the process. Memory: all processes after the load."
)


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median: 0.05 means that rounds differed by five per cent."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def rows(rounds: Rounds, versions: Mapping[str, Mapping[str, str]], date: str) -> list[dict[str, Any]]:
    """Return the list that bench/results keeps: one entry for each engine and name."""
    return [
        {
            "name": name,
            "engine": engine,
            "value": round(statistics.median(values), 3),
            "unit": unit,
            "spread": round(spread(values), 4),
            "versions": dict(versions[engine]),
            "date": date,
        }
        for engine, found in rounds.items()
        for name, unit in UNITS.items()
        if (values := [one[name] for one in found])
    ]


def _cell(values: Sequence[float], base: Sequence[float] | None) -> str:
    """Write median ± half the spread and, beside octavo's, the ratio with its range over rounds."""
    middle = statistics.median(values)
    half = (max(values) - min(values)) / 2
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    text = f"{middle:.{digits}f} ± {half:.{digits}f}"
    if base is None:
        return text
    ratios = [a / b for a, b in zip(values, base, strict=False) if b]
    return f"{text} ({statistics.median(ratios):.2f}x, {min(ratios):.2f} to {max(ratios):.2f})" if ratios else text


def markdown(
    rounds: Rounds,
    versions: Mapping[str, Mapping[str, str]],
    notes: Mapping[str, str],
    machine: Mapping[str, str],
    noise: Sequence[Noise],
    work: Work,
    date: str,
) -> str:
    """Lay out the table, what it was measured on, and how quiet that was."""
    count = max(len(found) for found in rounds.values())
    lines = [
        f"Measured {date}: {count} rounds, engines taking turns in each, SmolLM2-135M in bf16, prompts of "
        f"{work.input_len} tokens, answers of {work.output_len}, {work.threads} threads.",
        "Cells: median ± half the range over rounds; in brackets the ratio to octavo in the same round, its median and "
        "its range.",
        "",
        "| engine | " + " | ".join(_HEADS[name] for name in UNITS) + " |",
        "|---|" + "---|" * len(UNITS),
    ]
    base = rounds.get("octavo")
    for engine, found in rounds.items():
        cells = []
        for name in UNITS:
            mine = [one[name] for one in found]
            other = [one[name] for one in base] if base is not None and engine != "octavo" else None
            cells.append(_cell(mine, other))
        lines.append(f"| {engine} | " + " | ".join(cells) + " |")
    lines += ["", _LEGEND, ""]
    for engine in rounds:
        told = ", ".join(f"{package} {number}" for package, number in versions[engine].items())
        lines.append(f"- {engine}: {told or 'version unknown'}" + (f"; {notes[engine]}" if notes.get(engine) else ""))
    lines.append("- machine: " + ", ".join(f"{name} {value}" for name, value in machine.items()))
    busy = [100 * one.busy for one in noise]
    probes = [one.probe_ms for one in noise]
    lines.append(
        f"- noise: before each start other processes kept {min(busy):.0f} to {max(busy):.0f}% of the cores busy; a "
        f"fixed computation took {min(probes):.1f} to {max(probes):.1f} ms"
    )
    return "\n".join(lines) + "\n"


def write(path: Path, found: list[dict[str, Any]]) -> None:
    """Write the JSON file, one entry a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n", encoding="utf-8")


def charts(found: Sequence[Mapping[str, Any]]) -> list[Bars]:
    """Draw the entries of a results file: one chart for each name, one bar for each engine."""
    drawn = []
    for name in UNITS:
        bars = [
            Bar(row["engine"], row["value"], row["value"] * row["spread"] / 2) for row in found if row["name"] == name
        ]
        drawn.append(Bars(_HEADS[name], bars))
    return drawn
