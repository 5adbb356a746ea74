"""The short form of `make chaos`: a tiny model, some requests, some kills."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.run import Plan, run


def test_chaos_in_short(tiny: Path) -> None:
    plan = Plan(tiny, requests=64, kills=2, concurrency=16, max_tokens=48, vocab=100, pause_s=(0.05, 0.3))
    outcome = run(plan)
    print(outcome.line())
    assert outcome.good, (outcome.line(), outcome.errors)
    assert outcome.kills == {"worker": 1, "engine": 1}
