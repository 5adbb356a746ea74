"""When each request is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from octavo.errors import ConfigError

__all__ = ["Arrivals", "RampUp", "times"]


@dataclass(frozen=True, slots=True)
class RampUp:
    """A rate that grows over the run, by request."""

    strategy: Literal["linear", "exponential"]
    start: float  # requests per second
    end: float

    def rate(self, progress: float) -> float:
        """Return the rate at `progress`, 0 (first request) to 1 (last)."""
        if self.strategy == "linear":
            return self.start + (self.end - self.start) * progress
        return float(self.start * (self.end / self.start) ** progress)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A process of arrivals: gamma-distributed gaps. Burstiness 1 is Poisson, inf is a fixed beat."""

    rate: float = math.inf  # requests per second; inf: all at once
    burstiness: float = 1.0
    ramp_up: RampUp | None = None

    def check(self) -> None:
        """Refuse what cannot be. Raises ConfigError."""
        if not self.rate > 0:
            raise ConfigError(f"--request-rate {self.rate} must be more than 0", "request-rate")
        if not self.burstiness > 0:
            raise ConfigError(f"--burstiness {self.burstiness} must be more than 0", "burstiness")
        if self.ramp_up is None:
            return
        if self.rate != math.inf:
            raise ConfigError("--ramp-up-strategy sets the rate: leave --request-rate out", "request-rate")
        if not 0 <= self.ramp_up.start <= self.ramp_up.end or self.ramp_up.end == 0:
            raise ConfigError(
                "--ramp-up-start-rps must be 0 or more and at most --ramp-up-end-rps", "ramp-up-start-rps"
            )
        if self.ramp_up.strategy == "exponential" and self.ramp_up.start == 0:
            raise ConfigError("an exponential ramp-up cannot start at 0 requests per second", "ramp-up-start-rps")


def times(arrivals: Arrivals, count: int, rng: np.random.Generator) -> np.ndarray:  # [count] float64
    """Return when each of `count` requests is due, in seconds after the start, ascending.

    Without ramp-up the last one is due at exactly count / rate: the rate is kept in every seed.
    """
    ramp = arrivals.ramp_up
    if ramp is None and math.isinf(arrivals.rate):
        return np.zeros(count)
    rates = np.full(count, arrivals.rate)
    if ramp is not None:
        rates = np.array([ramp.rate(i / max(count - 1, 1)) for i in range(count)])
        rates = np.maximum(rates, rates[rates > 0].min(initial=ramp.end))  # a linear ramp may start at 0
    gaps = 1.0 / rates
    if not math.isinf(arrivals.burstiness):
        gaps *= rng.gamma(arrivals.burstiness, 1.0 / arrivals.burstiness, count)
    due = np.cumsum(gaps)
    if ramp is None and count:
        due *= count / arrivals.rate / due[-1]
    return due
