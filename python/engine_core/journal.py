"""What was done to the model since its checkpoint: kept in the run folder, so that it outlives the engine core.

Model state is the base checkpoint plus this. A core that is started again reads it; workers are told what they must
have, and one that has something else is not used. Each operation that changes the model adds its record here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BASE_VERSION", "Journal", "Record", "Weights"]

#: Of the weights as the checkpoint has them.
BASE_VERSION = "0"


class Weights(msgspec.Struct, frozen=True, tag="weights"):
    """The model has other weights from here on."""

    version: str


#: One operation. More kinds (adapters, pause, sleep) join this union with what makes them.
Record = Weights


class Journal:
    """Owns the file, one JSON object a line. What was recorded is on disk when `record` returns."""

    def __init__(self, path: Path) -> None:
        """Read what there is. Raises EngineError if the file is damaged other than at its end."""
        self._path = path
        self._records = _read(path)

    @property
    def records(self) -> tuple[Record, ...]:
        """All operations, in order."""
        return tuple(self._records)

    @property
    def weight_version(self) -> str:
        """The version of the weights that the model must have now."""
        return self._records[-1].version if self._records else BASE_VERSION

    def record(self, record: Record) -> None:
        """Add an operation that has been done."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._records.append(record)


def _read(path: Path) -> list[Record]:
    """Read the records; a last line that was cut off by a crash was never done."""
    if not path.exists():
        return []
    *lines, _cut = path.read_bytes().split(b"\n")
    try:
        return [msgspec.json.decode(line, type=Record) for line in lines]
    except msgspec.DecodeError as error:
        raise EngineError(f"{path} is damaged ({error}): restart the server to begin from the checkpoint") from None
