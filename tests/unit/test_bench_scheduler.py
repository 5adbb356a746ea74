"""The bench of the engine core runs, and what it measures is what it says."""

from __future__ import annotations

import json
from pathlib import Path

from bench.scheduler.__main__ import main
from bench.scheduler.core import Bench
from bench.scheduler.measure import step_seconds


def test_quick(tmp_path: Path) -> None:
    output = tmp_path / "scheduler.json"
    assert main(["--quick", "--rounds", "1", "--output", str(output)]) == 0
    rows = {row["name"]: row["value"] for row in json.loads(output.read_text())}
    assert rows["step_us/64/0"] > 0
    assert rows["lookup_100k_ms"] > 0
    assert rows["deltas_tokens_s"] > 1000


def test_every_running_request_gets_a_token_in_each_step() -> None:
    bench = Bench(8, 200)
    for number in range(8):
        bench.add([number + 3, *range(3, 40)], 30)
    bench.step()
    for _ in range(20):
        seconds, deltas = bench.step()
        assert len(deltas) == 8
        assert seconds > 0
    assert len(step_seconds(4, 10, 8)) == 8
