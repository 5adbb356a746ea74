"""What was done to the model since its checkpoint: kept in the run folder, so that it outlives the engine core.

Model state is the base checkpoint plus this. A core that is started again reads it; workers are told what they must
have, and one that has something else is not used. Each operation that changes the model adds its record here, when it
is done: what a crash interrupts has not happened.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BASE_VERSION", "Asleep", "Journal", "Paused", "Record", "Renamed", "Wanted", "Weights"]

#: Of the weights as the checkpoint has them.
BASE_VERSION = "0"


class Weights(msgspec.Struct, frozen=True, tag="weights"):
    """The model has other weights from here on."""

    version: str  # as users call them
    key: str = ""  # what caches and workers know them by, unlike that of any others; empty: the version
    overlay: str = ""  # the folder that has a copy of what was changed; empty: nobody has one
    complete: bool = False  # nothing of what was before is left


class Renamed(msgspec.Struct, frozen=True, tag="renamed"):
    """The weights are called otherwise from here on."""

    version: str


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """Nothing is scheduled from here on, or again."""

    paused: bool


class Asleep(msgspec.Struct, frozen=True, tag="asleep"):
    """These parts of the model sleep from here on, and no others."""

    tags: tuple[str, ...]
    level: int = 0


#: One operation.
Record = Weights | Renamed | Paused | Asleep


@dataclass(frozen=True, slots=True)
class Wanted:
    """The weights that the model must have."""

    key: str
    overlays: tuple[str, ...]  # folders to load over the checkpoint, in order
    lost: bool  # they cannot be loaded: some came over a wire and nobody kept a copy


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
        """What users call the weights that the model must have now."""
        named = (record.version for record in reversed(self._records) if isinstance(record, Weights | Renamed))
        return next(named, BASE_VERSION)

    @property
    def weights(self) -> Wanted:
        """The weights that the model must have now."""
        key, lost = BASE_VERSION, False
        overlays: list[str] = []
        for record in self._records:
            if isinstance(record, Weights):
                key = record.key or record.version
                if record.complete:
                    overlays, lost = [], False
                overlays += [record.overlay] if record.overlay else []
                lost |= not record.overlay
        return Wanted(key, tuple(overlays), lost)

    @property
    def lineage(self) -> str:
        """What tells weights of two engine cores apart: all that their present weights are made of."""
        keys = [BASE_VERSION]
        for record in self._records:
            if isinstance(record, Weights):
                keys = [*([] if record.complete else keys), record.key or record.version]
        return "\n".join(keys)

    @property
    def paused(self) -> bool:
        """Whether nothing is scheduled."""
        return next((record.paused for record in reversed(self._records) if isinstance(record, Paused)), False)

    @property
    def asleep(self) -> Asleep:
        """What sleeps."""
        return next((record for record in reversed(self._records) if isinstance(record, Asleep)), Asleep(()))

    def new_version(self) -> str:
        """Return a name for the next weights, for users who give none."""
        return str(1 + sum(isinstance(record, Weights) for record in self._records))

    def new_key(self, version: str) -> str:
        """Return what to know weights called `version` by: the name itself, unless others had it before."""
        known = {record.key or record.version for record in self._records if isinstance(record, Weights)}
        known.add(BASE_VERSION)
        key, number = version, 1
        while key in known:
            number += 1
            key = f"{version}~{number}"
        return key

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
    *lines, cut = path.read_bytes().split(b"\n")
    try:
        records: list[Record] = [msgspec.json.decode(line, type=Record) for line in lines]
    except msgspec.DecodeError as error:
        raise EngineError(f"{path} is damaged ({error}): restart the server to begin from the checkpoint") from None
    if cut:  # or the next record would be written behind it
        with path.open("r+b") as file:
            file.truncate(sum(len(line) + 1 for line in lines))
    return records
