"""Results as they come, safe from a crash, and the output that is made of them."""

from __future__ import annotations

import fcntl
import os
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import ConfigError, OctavoError

if TYPE_CHECKING:
    from octavo.batch.lines import Lines

__all__ = ["Journal"]

_FORMAT = 1


class _Head(msgspec.Struct):
    octavo_batch: int
    input: str  # SHA-256
    lines: int


class _Entry(msgspec.Struct):
    line: int
    result: msgspec.Raw


class _Id(msgspec.Struct):
    custom_id: str | None


class Journal:
    """The file beside the output (OUTPUT.partial) in which each result is one line, in the order in which they came.

    A run that starts finds what the one before it had: a line whose end was not written is dropped, all others hold.
    `finish` writes the output, in the order of the input, under its own name at once, and removes the file.
    Invariant: each line of the input is there at most once.
    """

    def __init__(self, output: Path, lines: Lines) -> None:
        """Open or begin the file. Raises ConfigError where it is another input's, or another run writes it."""
        self.output = output
        self.path = output.with_name(output.name + ".partial")
        self._lines = lines
        self._places: dict[int, tuple[int, int]] = {}  # by line: offset and length of the entry
        try:
            self._file: FileIO = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise ConfigError(f"--output-file {output}: {error.strerror}: {self.path}", "output-file") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConfigError(f"another run writes {self.path}: wait for it, or end it", "output-file") from None
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, line: int) -> bool:
        return line in self._places

    def check(self) -> None:
        """Assert the invariant."""
        assert all(0 <= line < len(self._lines) for line in self._places)

    @staticmethod
    def is_done(output: Path, lines: Lines) -> bool:
        """Whether a file holds a result for each line, in their order."""
        try:
            with output.open("rb") as file:
                found = [msgspec.json.decode(line, type=_Id).custom_id for line in file]
        except (OSError, msgspec.MsgspecError):
            return False
        return found == list(lines.custom_ids())

    def add(self, line: int, result: bytes) -> None:
        """Keep the result of a line. Raises OSError where there is no room."""
        assert line not in self._places, f"line {line} came twice"
        entry = msgspec.json.encode(_Entry(line, msgspec.Raw(result))) + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        self._write(entry)
        self._places[line] = (start, len(entry))

    def finish(self) -> None:
        """Write the output. Needs all lines."""
        if len(self._places) != len(self._lines):
            raise OctavoError(f"{len(self._places)} of {len(self._lines)} lines are done")
        scratch = self.output.with_name(self.output.name + ".new")
        with scratch.open("wb") as file:
            for line in range(len(self._lines)):
                start, length = self._places[line]
                self._file.seek(start)
                entry = msgspec.json.decode(self._file.read(length), type=_Entry)
                file.write(bytes(entry.result) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.output)
        self.path.unlink()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def _read(self) -> None:
        with self.path.open("rb") as reader:
            head = reader.readline()
            if not head.endswith(b"\n"):
                self._file.truncate(0)
                self._write(msgspec.json.encode(_Head(_FORMAT, self._lines.digest, len(self._lines))) + b"\n")
                return
            self._agree(head)
            at = len(head)
            for entry in reader:
                if not entry.endswith(b"\n"):
                    break  # it was being written
                try:
                    line = msgspec.json.decode(entry, type=_Entry).line
                except msgspec.MsgspecError:
                    raise ConfigError(f"{self.path} is damaged at byte {at}: remove it", "output-file") from None
                self._places.setdefault(line, (at, len(entry)))
                at += len(entry)
        self._file.truncate(at)
        self.check()

    def _agree(self, head: bytes) -> None:
        try:
            told = msgspec.json.decode(head, type=_Head)
        except msgspec.MsgspecError:
            raise ConfigError(f"{self.path} is no journal of a batch: remove it", "output-file") from None
        if told.octavo_batch != _FORMAT or told.input != self._lines.digest:
            raise ConfigError(
                f"{self.path} holds results of another input than {self._lines.path}: "
                "remove it, or name another --output-file",
                "output-file",
            )
