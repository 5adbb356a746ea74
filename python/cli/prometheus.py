"""Prometheus's text format, as far as `octavo top` reads it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

__all__ = ["Scrape", "parse"]

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: [0-9]+)?$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of one moment."""

    samples: tuple[tuple[str, dict[str, str], float], ...]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a name's samples that have these labels; 0.0 where there are none."""
        return sum(
            value
            for found, have, value in self.samples
            if found == name and all(have.get(key) == text for key, text in labels.items())
        )

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's counts of observations up to each bound."""
        counts: dict[float, float] = {}
        for found, labels, value in self.samples:
            if found == f"{name}_bucket":
                bound = float(labels["le"].replace("+Inf", "inf"))
                counts[bound] = counts.get(bound, 0.0) + value
        return counts

    def quantile(self, name: str, share: float, before: Scrape | None = None) -> float | None:
        """Return about which value a share of a histogram's observations, since an earlier scrape, lies below.

        Within a bucket values are taken to be spread evenly. None where nothing was observed.
        """
        earlier = before.buckets(name) if before is not None else {}
        counts = sorted((bound, count - earlier.get(bound, 0.0)) for bound, count in self.buckets(name).items())
        if not counts or counts[-1][1] <= 0:
            return None
        wanted = share * counts[-1][1]
        low, below = 0.0, 0.0
        for bound, count in counts:
            if count >= wanted:
                if math.isinf(bound):
                    return low
                return low + (bound - low) * (wanted - below) / max(count - below, 1e-9)
            low, below = bound, count
        return low


def parse(text: str) -> Scrape:
    """Read what a /metrics route answers; lines that are no samples are passed over."""
    samples = []
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            labels = dict(_LABEL.findall(match[2] or ""))
            samples.append((match[1], labels, float(match[3].replace("Inf", "inf"))))
    return Scrape(tuple(samples))
