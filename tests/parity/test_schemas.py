"""A sample of what `python -m tests.parity.schemas` tries whole."""

from __future__ import annotations

import pytest

from tests.parity.schemas import ORACLE, oracle, try_schemas


def test_a_random_model_writes_instances_only() -> None:
    if not ORACLE.exists():
        pytest.skip(f"{ORACLE} is not there")
    rows = [row for row in oracle() if len(str(row["schema"])) < 1500][::16]
    counts = try_schemas(rows, 2, 100)
    assert not counts.failed and not counts.invalid
    assert counts.stopped >= 3
