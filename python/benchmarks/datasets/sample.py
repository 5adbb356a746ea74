"""What a data set yields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ConfigError

__all__ = ["Sample", "Turn", "oversample", "read_json", "read_json_lines", "spread"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: what the user says and how long an answer to ask for."""

    text: str
    tokens: int  # of `text`
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One prompt or, with more than one turn, one conversation, whose turns wait for each other."""

    turns: tuple[Turn, ...]


def spread(rng: np.random.Generator, mean: int, ratio: float, low: int, count: int) -> list[int]:
    """Draw lengths uniformly from mean * (1 - ratio) to mean * (1 + ratio), both included, at least `low`."""
    least = max(int(np.floor(mean * (1 - ratio))), low)
    most = max(int(np.ceil(mean * (1 + ratio))), low)
    drawn: list[int] = rng.integers(least, most + 1, count).tolist()
    return drawn


def oversample(found: Sequence[Sample], count: int, rng: np.random.Generator, *, repeat: bool) -> list[Sample]:
    """Fill up to `count` samples by drawing from those found, unless that is refused."""
    if not found:
        raise ConfigError("the data set has no usable sample", "dataset-path")
    more = max(count - len(found), 0) if repeat else 0
    return [*found, *(found[i] for i in rng.integers(0, len(found), more))]


def read_json(path: str | None, name: str) -> Any:
    """Read the JSON file that data set `name` needs. Raises ConfigError."""
    text = _read(path, name)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"--dataset-path {path} is not JSON: {error}", "dataset-path") from None


def read_json_lines(path: str | None, name: str) -> list[dict[str, Any]]:
    """Read the JSON Lines file that data set `name` needs; blank lines are skipped. Raises ConfigError."""
    rows = []
    for number, line in enumerate(_read(path, name).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"--dataset-path {path}, line {number}: not JSON: {error}", "dataset-path") from None
        if not isinstance(row, dict):
            raise ConfigError(f"--dataset-path {path}, line {number}: not a JSON object", "dataset-path")
        rows.append(row)
    return rows


def _read(path: str | None, name: str) -> str:
    if path is None:
        raise ConfigError(f"--dataset-name {name} needs --dataset-path FILE", "dataset-path")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--dataset-path {path}: {error}", "dataset-path") from None
