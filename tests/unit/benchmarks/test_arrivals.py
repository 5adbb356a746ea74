"""Arrival times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.benchmarks.arrivals import Arrivals, RampUp, times
from octavo.errors import ConfigError


def gaps(arrivals: Arrivals, count: int = 4000, seed: int = 0) -> np.ndarray:
    due = times(arrivals, count, np.random.default_rng(seed))
    return np.diff(due, prepend=0.0)


def test_all_at_once() -> None:
    assert times(Arrivals(), 5, np.random.default_rng(0)).tolist() == [0.0] * 5
    assert times(Arrivals(3.0), 0, np.random.default_rng(0)).tolist() == []


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_spread_that_were_asked(burstiness: float) -> None:
    found = gaps(Arrivals(20.0, burstiness))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(4000 / 20)  # exactly: whatever the seed
    # a gamma distribution of shape b has a coefficient of variation of 1 / sqrt(b)
    assert found.std() / found.mean() == pytest.approx(1 / math.sqrt(burstiness), rel=0.1)


def test_infinite_burstiness_is_a_beat() -> None:
    assert gaps(Arrivals(4.0, math.inf), 8) == pytest.approx([0.25] * 8)


def test_the_seed_decides() -> None:
    assert (gaps(Arrivals(4.0), seed=1) == gaps(Arrivals(4.0), seed=1)).all()
    assert (gaps(Arrivals(4.0), seed=1) != gaps(Arrivals(4.0), seed=2)).any()


def test_ramp_up_moves_from_one_rate_to_the_other() -> None:
    linear = gaps(Arrivals(burstiness=math.inf, ramp_up=RampUp("linear", 1, 5)), 5)
    assert linear == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    exponential = gaps(Arrivals(burstiness=math.inf, ramp_up=RampUp("exponential", 1, 4)), 3)
    assert exponential == pytest.approx([1, 1 / 2, 1 / 4])
    assert np.isfinite(gaps(Arrivals(ramp_up=RampUp("linear", 0, 5)), 5)).all()  # from nothing


@pytest.mark.parametrize(
    "arrivals",
    [
        Arrivals(0.0),
        Arrivals(-1.0),
        Arrivals(math.nan),
        Arrivals(1.0, 0.0),
        Arrivals(2.0, ramp_up=RampUp("linear", 1, 5)),
        Arrivals(ramp_up=RampUp("linear", 5, 1)),
        Arrivals(ramp_up=RampUp("exponential", 0, 1)),
    ],
)
def test_what_cannot_be_is_refused(arrivals: Arrivals) -> None:
    with pytest.raises(ConfigError):
        arrivals.check()
