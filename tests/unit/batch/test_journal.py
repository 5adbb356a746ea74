"""What is kept of a run that ends in the middle, and what is made of it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from octavo.batch import Journal, Lines, failed, result
from octavo.batch.lines import BadLine
from octavo.errors import ConfigError, OctavoError

COUNT = 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    line = {"url": "/v1/completions", "body": {"prompt": "x"}}
    file.write_text("".join(json.dumps({"custom_id": f"c{n}"} | line) + "\n" for n in range(COUNT)))
    return file


def answer(number: int) -> bytes:
    return result(f"c{number}", 200, "r", json.dumps({"n": number}).encode())


def test_it_resumes_wherever_it_was_cut_and_the_output_is_in_order(source: Path, tmp_path: Path) -> None:
    """Each byte at which a crash may cut the file, one after the other."""
    output = tmp_path / "out.jsonl"
    order = random.Random(1).sample(range(COUNT), COUNT)
    with Lines(source) as lines:
        with Journal(output, lines) as journal:
            for number in order[:4]:
                journal.add(number, answer(number))
        whole = journal.path.read_bytes()
        ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
        for cut in range(len(whole) + 1):
            journal.path.write_bytes(whole[:cut])
            with Journal(output, lines) as journal:
                assert len(journal) == max(0, sum(end <= cut for end in ends) - 1)
        with Journal(output, lines) as journal:
            for number in order:
                if number not in journal:
                    journal.add(number, answer(number))
            journal.check()
            journal.finish()
        assert not journal.path.exists()
        assert Journal.is_done(output, lines)
    got = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["custom_id"] for one in got] == [f"c{n}" for n in range(COUNT)]
    assert [one["response"]["body"]["n"] for one in got] == list(range(COUNT))
    assert len({one["id"] for one in got}) == COUNT


def test_an_unfinished_batch_has_no_output(source: Path, tmp_path: Path) -> None:
    with Lines(source) as lines, Journal(tmp_path / "out", lines) as journal:
        journal.add(0, answer(0))
        with pytest.raises(OctavoError, match="1 of 20"):
            journal.finish()
    assert not (tmp_path / "out").exists()


def test_another_input_and_another_run_are_refused(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with Lines(source) as lines, Journal(output, lines), pytest.raises(ConfigError, match="another run writes"):
        Journal(output, lines)
    source.write_text(source.read_text().replace("c1", "d1"))
    with Lines(source) as lines, pytest.raises(ConfigError, match=r"another input .* remove it"):
        Journal(output, lines)


@pytest.mark.parametrize("text", ["hello\n", "{}\n", '{"octavo_batch":1,"input":"INPUT","lines":20}\nx\n'])
def test_what_is_no_journal_is_not_touched(source: Path, tmp_path: Path, text: str) -> None:
    with Lines(source) as lines:
        partial = tmp_path / "out.partial"
        partial.write_text(text.replace("INPUT", lines.digest))
        before = partial.read_text()
        with pytest.raises(ConfigError, match="remove it"):
            Journal(tmp_path / "out", lines)
        assert partial.read_text() == before


def test_a_result_is_one_line_with_the_answer_as_it_came() -> None:
    body = b'{"usage": {"x": 1.50},\n "text": "a\\nb"}'
    text = result("c", 200, "req-1", body)
    assert b"\n" not in text
    assert json.loads(text)["response"] == {"status_code": 200, "request_id": "req-1", "body": json.loads(body)}
    assert json.loads(text)["error"] is None


def test_a_refusal_stands_in_both_places() -> None:
    body = {"error": {"message": "no", "type": "t", "param": "p", "code": "missing_field"}}
    got = json.loads(result("c", 400, "r", json.dumps(body).encode()))
    assert (got["response"]["status_code"], got["response"]["body"]) == (400, body)
    assert got["error"] == {"code": "missing_field", "message": "no"}
    got = json.loads(result("c", 502, "r", b"<html>"))
    assert (got["response"]["body"], got["error"]["code"]) == ("<html>", "http_502")
    got = json.loads(failed(BadLine(None, "invalid_json", "why")))
    assert (got["custom_id"], got["response"], got["error"]["message"]) == (None, None, "why")
