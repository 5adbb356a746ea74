"""Hidden states that come in parts."""

from __future__ import annotations

import pytest
import torch

from octavo.workers.pooling.gathering import ALL, CLS, LAST, MEAN, Gathering


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_parts_change_nothing(size: int) -> None:
    hidden = torch.arange(27, dtype=torch.float32).reshape(9, 3)
    wanted = {CLS: hidden[:1], LAST: hidden[-1:], MEAN: hidden.mean(0, keepdim=True), ALL: hidden}
    for kind, expected in wanted.items():
        gathering = Gathering(kind)
        gathering.add(torch.full((2, 3), 7.0), 0)  # of an attempt before
        for start in range(0, 9, size):
            gathering.add(hidden[start : start + size], start)
        torch.testing.assert_close(gathering.take(), expected)


def test_sums_are_wide() -> None:
    gathering = Gathering(MEAN)
    gathering.add(torch.ones(3000, 1, dtype=torch.bfloat16), 0)
    assert gathering.take().item() == 1.0
