"""How many plans are in flight."""

from __future__ import annotations

from octavo.engine_core.window import plans_in_flight


def test_small_models_on_gpus_have_one_plan_more() -> None:
    assert plans_in_flight("cpu", 1 << 20) == 1
    assert plans_in_flight("cuda", 16 << 30) == 2
    assert plans_in_flight("cuda", 1 << 30) == 3
