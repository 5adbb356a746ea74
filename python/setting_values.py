"""How values of settings are read from the words of a user."""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["file", "json_object", "share"]


def share(text: str) -> float:
    """Return a share of a whole. Raises ValueError unless it is above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a share, such as 0.92") from None
    if not 0 < value <= 1:
        raise ValueError("must be more than 0 and at most 1")
    return value


def file(text: str) -> Path:
    """Return the absolute path of a file. Raises ValueError where there is none."""
    path = Path(text).absolute()
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


def json_object(text: str) -> str:
    """Return the text of a JSON object. Raises ValueError for anything else."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return text
