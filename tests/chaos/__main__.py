"""`make chaos`: 500 requests on SmolLM2 in fp32, half of them on two ranks, 20 kills. One summary line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from octavo.modelfiles.smollm2 import fetch
from tests.chaos.run import Outcome, Plan, run


def main() -> int:
    """Run it; 0 when nothing went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder or .gguf file; default: SmolLM2, fetched if need be")
    parser.add_argument("--requests", type=int, default=500, help="in all (500)")
    parser.add_argument("--kills", type=int, default=20, help="in all (20)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total = Outcome()
    for ranks in (1, 2):
        plan = Plan(_model(args.model), args.requests // 2, args.kills // 2, ranks=ranks, seed=args.seed * 10 + ranks)
        outcome = run(plan)
        print(f"{ranks} rank{'s' if ranks > 1 else ''}: {outcome.line()}", flush=True)
        total.add(outcome)
    for error in total.errors[:20]:
        print(f"  {error}", file=sys.stderr)
    print(total.line())
    return 0 if total.good else 1


def _model(given: Path | None) -> Path:
    if given is not None:
        return given
    if found := os.environ.get("OCTAVO_SMOLLM2"):
        return Path(found)
    return fetch()


if __name__ == "__main__":
    sys.exit(main())
