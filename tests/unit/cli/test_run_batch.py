"""The command around a batch: what it refuses, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.cli import main

LINE = json.dumps({"custom_id": "a", "url": "/v1/completions", "body": {}}) + "\n"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-i", "s3://bucket/in", "-o", "OUT"], "--input-file s3://bucket/in: must be a local file"),
        (["-i", "IN", "-o", "https://host/out"], "--output-file https://host/out: must be a local file"),
        (["-i", "FOLDER", "-o", "OUT"], "is a folder"),
        (["-i", "NOTHING", "-o", "OUT"], "No such file"),
        (["-i", "IN", "-o", "FOLDER/no/out"], "No such file"),
        (["-i", "IN", "-o", "IN2"], "give --overwrite"),
        (["-i", "IN", "-o", "OUT", "--max-concurrency", "0"], "--max-concurrency 0: must be 1 or more"),
        (["-i", "IN", "-o", "OUT", "--max-num-seqs", "4"], "give MODEL too"),
    ],
)
def test_what_cannot_work_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], shown: str
) -> None:
    (tmp_path / "IN").write_text(LINE)
    (tmp_path / "IN2").write_text("other\n")
    names = {"IN": "IN", "IN2": "IN2", "OUT": "OUT", "NOTHING": "NOTHING"}
    paths = {name: str(tmp_path / path) for name, path in names.items()} | {
        "FOLDER": str(tmp_path),
        "FOLDER/no/out": str(tmp_path / "no" / "out"),
    }
    assert main(["run-batch", *(paths.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert shown in error
    assert error.count("\n") == 1
    assert (tmp_path / "IN2").read_text() == "other\n"


def test_the_files_are_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run-batch", "smollm2"])
    assert ended.value.code == 2
    assert "--input-file" in capsys.readouterr().err


def test_an_output_that_is_whole_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text(LINE)
    (tmp_path / "out").write_text('{"custom_id": "a"}\n')
    assert main(["run-batch", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert "already" in capsys.readouterr().err


def test_an_empty_input_gives_an_empty_output(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n")
    assert main(["run-batch", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == ""


def test_a_server_that_is_not_there_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text(LINE)
    words = ["run-batch", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--url", "http://127.0.0.1:9"]
    assert main(words) == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
