"""`octavo bench sweep`: `octavo bench serve` at several rates or concurrencies; one table and one plot at the end."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.benchmarks.options import add_flags, from_namespace
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.serve import Outcome

__all__ = ["Point", "add_command", "points", "table"]

_EXAMPLES = """\
examples:
  octavo bench sweep --model NAME --request-rates 1,2,4,8 --num-prompts 100 --plot sweep.html
  octavo bench sweep --backend openai-chat --concurrencies 1,4,16 --prompts-per-level 8 --random-input-len 128

All other flags are those of `octavo bench serve`. Each level draws its own prompts, so that no level finds those of the
one before in the server's prefix cache.
"""

#: Columns of the table: head, key, decimals.
_COLUMNS = (
    ("req/s", "request_throughput", 2),
    ("out tok/s", "output_throughput", 1),
    ("TTFT p50", "median_ttft_ms", 1),
    ("p99", "p99_ttft_ms", 1),
    ("TPOT p50", "median_tpot_ms", 2),
    ("p99", "p99_tpot_ms", 2),
    ("E2EL p50", "median_e2el_ms", 1),
    ("p99", "p99_e2el_ms", 1),
    ("failed", "failed", 0),
    ("client %", "client_cpu_share", 2),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """One level of the load and the options that make it."""

    level: float
    options: ServeOptions


def add_command(commands: Any, raw: dict[str, Any]) -> None:
    """Add `sweep` to the commands of `octavo bench`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="the same at several rates or concurrencies, with one table and one plot",
        description="Measure a server at several rates or concurrencies.",
        epilog=_EXAMPLES,
        usage="octavo bench sweep (--request-rates A,B,... | --concurrencies A,B,...) [FLAGS of octavo bench serve]",
        **raw,
    )
    group = parser.add_argument_group("levels")
    group.add_argument("--request-rates", metavar="A,B,...", help="requests per second, or inf", default=None)
    group.add_argument("--concurrencies", metavar="A,B,...", help="requests at once", default=None)
    group.add_argument(
        "--prompts-per-level",
        metavar="X",
        type=float,
        default=None,
        help="prompts for each unit of the level, instead of --num-prompts: 8 at concurrency 16 makes 128",
    )
    add_flags(parser)
    parser.set_defaults(run=_run, parser=parser)


def points(given: dict[str, Any]) -> tuple[str, list[Point]]:
    """Return what the levels are and the points of the sweep. Raises ConfigError."""
    given = dict(given)
    rates, concurrencies = given.pop("request_rates"), given.pop("concurrencies")
    factor = given.pop("prompts_per_level")
    if (rates is None) == (concurrencies is None):
        raise ConfigError("give either --request-rates or --concurrencies")
    name, field = ("--request-rates", "request_rate") if rates else ("--concurrencies", "max_concurrency")
    try:
        levels = [float(word) for word in (rates or concurrencies).split(",")]
    except ValueError:
        raise ConfigError(f"{name} {rates or concurrencies!r} is not like 1,2,4") from None
    found = []
    for number, level in enumerate(levels):
        changes: dict[str, Any] = {field: level if rates else int(level), "seed": given.get("seed", 0) + number}
        if factor is not None:
            if math.isinf(level):
                raise ConfigError("--prompts-per-level needs finite levels: give --num-prompts instead")
            changes["num_prompts"] = max(round(level * factor), 1)
        found.append(Point(level, from_namespace(given | changes)))
    return ("request rate, 1/s" if rates else "requests at once"), found


def _run(given: dict[str, Any]) -> int:
    from octavo.benchmarks import plot
    from octavo.benchmarks.serve import measure, save

    load, levels = points(given)
    outcomes: list[tuple[float, Outcome]] = []
    for number, point in enumerate(levels, 1):
        print(f"== {load} {point.level:g} ({number} of {len(levels)})", file=sys.stderr)
        outcome = asyncio.run(measure(point.options))
        save(point.options, outcome.found)
        outcomes.append((point.level, outcome))
    rows = [(level, outcome.found) for level, outcome in outcomes]
    print(table(load, rows))
    options = levels[0].options
    if options.plot is not None:
        plot.write_sweep(Path(options.plot), options.label or options.backend, load, rows)
        print(f"Plot: {options.plot}")
    return 1 if any(outcome.metrics.failed > options.max_failures for _, outcome in outcomes) else 0


def table(load: str, rows: list[tuple[float, dict[str, Any]]]) -> str:
    """Lay out one line for each level; latencies in milliseconds."""
    lines = [f"{load:<18}" + "".join(f"{head:>11}" for head, _, _ in _COLUMNS)]
    for level, found in rows:
        cells = []
        for _, key, decimals in _COLUMNS:
            value = found.get(key)
            value = 100 * value if key == "client_cpu_share" and value is not None else value
            cells.append(f"{'-' if value is None else f'{value:.{decimals}f}':>11}")
        lines.append(f"{level:<18g}" + "".join(cells))
    return "\n".join(lines)
