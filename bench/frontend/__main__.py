"""The command: rounds of all the work, a table, bench/results/frontend.json."""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.compare.machine import describe, probe
from bench.frontend.processes import HOW_TO_COUNT, Programs
from bench.frontend.report import rows, table
from bench.frontend.work import Work, goals, measure, prepare_tokenizer
from octavo import __version__
from octavo.errors import OctavoError

_ROOT = Path(__file__).resolve().parents[2]
_DEFAULT_OUTPUT = _ROOT / "bench" / "results" / "frontend.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.frontend",
        description="Measure the Rust frontend: octavo-mock, a scripted engine, behind it, octavo-load in front of it.",
        epilog=f"Allocations are counted by a frontend that is built for it: {HOW_TO_COUNT}",
    )
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of everything (3)")
    parser.add_argument("--counting", metavar="FILE", help="the frontend that counts (target/count/release/...)")
    parser.add_argument("--output", type=Path, default=_DEFAULT_OUTPUT, help="where the list goes (bench/results/...)")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; return the exit code."""
    args = _parser().parse_args(argv)
    try:
        programs = Programs.find(args.counting)
        found, text = _run(programs, max(1, args.rounds), Work.quick() if args.quick else Work())
    except OctavoError as error:
        print(f"bench.frontend: {error}", file=sys.stderr)
        return 1
    print(text)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _run(programs: Programs, count: int, work: Work) -> tuple[list[dict[str, object]], str]:
    rounds, noise = [], [probe()]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder)
        name = prepare_tokenizer(tokenizer, work.real_tokenizer)
        for number in range(count):
            began = time.monotonic()
            rounds.append(measure(programs, tokenizer, work))
            noise.append(probe())
            print(f"round {number + 1} of {count}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=_ROOT, check=False
    )
    versions = {
        "octavo": __version__,
        "commit": commit.stdout.strip() or "unknown",  # of the bench; the frontend may have been built before it
        "frontend": f"sha256:{hashlib.sha256(Path(programs.frontend).read_bytes()).hexdigest()[:12]}",
        "tokenizer": name,
    }
    found = rows(rounds, goals(), versions, datetime.now(UTC).strftime("%Y-%m-%d"))
    step = work.serve_step_ms
    floors = {
        "tokens_per_event": "1: none merged",
        "ttft_p50_ms": f"the script's own: {step:g} to {2 * step:g}",
        "ttft_p99_ms": f"the script's own: {step:g} to {2 * step:g}",
        "stream_tokens_s": f"offered: {work.full_streams * 1000:,}",
    }
    return found, table(found, floors, describe(), noise, count)


if __name__ == "__main__":
    sys.exit(main())
