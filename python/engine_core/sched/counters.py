"""What an engine counts: totals since it started, and how large things were."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from octavo.wire.frontend import Histogram

__all__ = ["SCHEDULER_BOUNDS_S", "STEP_TOKEN_BOUNDS", "Counters", "Observations"]

SCHEDULER_BOUNDS_S = (25e-6, 50e-6, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.5)
#: vLLM's for iteration_tokens_total.
STEP_TOKEN_BOUNDS = tuple(float(n) for n in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384))


class Observations:
    """Counts observations in buckets; a bucket holds what is at most its bound and above the one before."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def record(self) -> Histogram:
        """Return what was observed so far."""
        return Histogram(self._bounds, tuple(self._counts), self._total)


@dataclass(slots=True)
class Counters:
    """Totals since the core started."""

    prompt_tokens: int = 0
    generated_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    decode_tokens: int = 0
    prefill_tokens: int = 0
    decode_rows: int = 0
    prefill_rows: int = 0
    scheduler_seconds: Observations = field(default_factory=lambda: Observations(SCHEDULER_BOUNDS_S))
    step_tokens: Observations = field(default_factory=lambda: Observations(STEP_TOKEN_BOUNDS))
