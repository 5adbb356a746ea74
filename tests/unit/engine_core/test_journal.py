"""The journal outlives the process that wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.engine_core.journal import BASE_VERSION, Journal, Weights
from octavo.errors import EngineError


def test_records_are_there_for_the_next_core(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    assert journal.weight_version == BASE_VERSION
    assert not path.exists()
    journal.record(Weights("step-7"))
    journal.record(Weights("step-8"))
    again = Journal(path)
    assert again.records == journal.records == (Weights("step-7"), Weights("step-8"))
    assert again.weight_version == "step-8"


def test_a_record_that_a_crash_cut_off_was_never_done(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).record(Weights("a"))
    with path.open("ab") as file:
        file.write(b'{"type":"wei')
    assert Journal(path).weight_version == "a"


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"nonsense\n")
    with pytest.raises(EngineError, match="is damaged"):
        Journal(path)
