"""What is rehearsed: a small model of the same kinds of layers, and the steps of a start."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.workers.rehearsal import few_layers

SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"num_hidden_layers": 36}, 2),
        ({"num_hidden_layers": 1}, 1),
        ({"num_hidden_layers": 36, "layer_types": [FULL] * 36}, 2),
        ({"num_hidden_layers": 1, "layer_types": [FULL]}, 1),
        ({"num_hidden_layers": 12, "layer_types": ([SLIDING] * 5 + [FULL]) * 2}, 6),
        ({"num_hidden_layers": 26, "sliding_window_pattern": 6}, 6),
        ({"num_hidden_layers": 4, "sliding_window_pattern": 6}, 4),
    ],
)
def test_a_few_layers_have_every_kind(config: dict[str, Any], layers: int) -> None:
    before = dict(config)
    found = few_layers(config)
    assert config == before
    assert found["num_hidden_layers"] == layers
    assert set(found.get("layer_types", ())) == set(config.get("layer_types", ()))
    assert len(found.get("layer_types", [0] * layers)) == layers
