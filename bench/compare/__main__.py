"""The command line of the comparison."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.compare import machine, report
from bench.compare.engines import ENGINES, Engine, installed, version
from bench.compare.models import Forms, prepare
from bench.compare.rounds import UNITS, Work, run_round
from octavo.benchmarks import plot
from octavo.benchmarks.startup import ends_on_sigterm
from octavo.errors import OctavoError
from octavo.modelfiles.smollm2 import cache_folder

RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Above this share of busy cores a comparison is not begun: its figures would be those of the neighbours.
QUIET = 0.10


def main(argv: Sequence[str] | None = None) -> int:
    """Compare and return the exit code: 1 where an engine failed or the machine is too busy."""
    arguments = _arguments(argv)
    wanted = arguments.engines.split(",") if arguments.engines else [engine.name for engine in ENGINES]
    engines = [engine for engine in ENGINES if engine.name in wanted]
    found = [(engine, program) for engine in engines if (program := installed(engine, arguments.peers)) is not None]
    _say_missing(arguments.peers, [engine.name for engine, _ in found])
    if arguments.list:
        return 0
    busy = machine.busy_share()
    if busy > QUIET and not arguments.busy_anyway:
        print(
            f"Other processes keep {100 * busy:.0f}% of the cores busy: wait, or give --busy-anyway.", file=sys.stderr
        )
        return 1
    work = Work(threads=arguments.threads, single=arguments.single, many=arguments.many)
    forms = prepare(arguments.models)
    with ends_on_sigterm():
        rounds, noise, failed = _measure(found, forms, work, arguments)
    whole = {name: one for name, one in rounds.items() if len(one) == arguments.rounds}
    if not whole:
        return 1
    versions = {engine.name: version(engine, program) for engine, program in found}
    notes = {engine.name: engine.note for engine, _ in found}
    date = time.strftime("%Y-%m-%d")
    text = report.markdown(whole, versions, notes, machine.describe(), noise, work, date)
    text += "".join(f"- not in the table: {message}\n" for message in failed.values())
    print(text)
    if arguments.write:
        kept = report.rows(whole, versions, date)
        report.write(RESULTS / "cpu.json", kept)
        plot.write(RESULTS / "cpu.svg", "CPU", report.charts(kept))
        (RESULTS / "cpu.md").write_text(text, encoding="utf-8")
        print(f"Written: cpu.json, cpu.md and cpu.svg in {RESULTS}", file=sys.stderr)
    return 1 if failed else 0


def _measure(
    found: list[tuple[Engine, str]], forms: Forms, work: Work, arguments: argparse.Namespace
) -> tuple[dict[str, list[dict[str, float]]], list[machine.Noise], dict[str, str]]:
    """Return what each engine did in each round, the noise before each start, and why engines dropped out."""
    rounds: dict[str, list[dict[str, float]]] = {engine.name: [] for engine, _ in found}
    noise = []
    failed: dict[str, str] = {}
    for number in range(arguments.rounds):
        for engine, program in _turns(found, number):
            if engine.name in failed:
                continue
            noise.append(machine.probe())
            log = arguments.models / f"{engine.name}.log"
            try:
                values = run_round(engine, program, forms, work, 1000 * (number + 1), log)
            except OctavoError as error:
                failed[engine.name] = error.message
                print(f"{engine.name}: {error.message}", file=sys.stderr)
                continue
            rounds[engine.name].append(values)
            told = "  ".join(f"{name} {values[name]:.1f}" for name in UNITS)
            print(f"round {number + 1}  {engine.name:<18}{told}", file=sys.stderr)
    return rounds, noise, failed


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, help="how often each engine is started (default: 3)")
    parser.add_argument("--engines", default="", metavar="A,B", help="only these")
    parser.add_argument("--threads", type=int, default=2, help="for each engine (default: 2)")
    parser.add_argument("--single", type=int, default=6, help="requests one at a time (default: 6)")
    parser.add_argument("--many", type=int, default=32, help="requests 16 at a time (default: 32)")
    cache = cache_folder()
    parser.add_argument("--peers", type=Path, default=cache / "peers", help="folder with one environment for each peer")
    parser.add_argument("--models", type=Path, default=cache / "bench", help="folder for models and logs")
    parser.add_argument("--list", action="store_true", help="say what is installed, and how to install the rest")
    parser.add_argument("--write", action="store_true", help="keep the result in bench/results")
    parser.add_argument("--busy-anyway", action="store_true", help="measure although the machine is busy")
    return parser.parse_args(argv)


def _turns(found: list[tuple[Engine, str]], number: int) -> list[tuple[Engine, str]]:
    """Return the order of a round: each begins with another engine, so that none is always first or last."""
    at = number % max(len(found), 1)
    return found[at:] + found[:at]


def _say_missing(peers: Path, names: list[str]) -> None:
    print(f"Installed: {', '.join(names) or 'none'}", file=sys.stderr)
    for engine in ENGINES:
        if engine.name not in names:
            env = peers / engine.name
            print(f"  without {engine.name}: python -m venv {env} && {engine.install.format(env=env)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
