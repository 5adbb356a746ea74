"""What a line of a batch may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.batch import BadLine, Lines, Request
from octavo.errors import ConfigError

GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}


def parsed(folder: Path, *lines: str) -> list[Request | BadLine]:
    file = folder / "in.jsonl"
    file.write_text("\n".join(lines))
    with Lines(file) as found:
        return [found.read(number) for number in range(len(found))]


def test_a_body_goes_out_as_it_stands(tmp_path: Path) -> None:
    body = '{"prompt": "Zürich 😀",  "max_tokens":1, "x": 1e400}'
    line = '{"custom_id": "ü", "url": "/v1/completions", "body": ' + body + "}"
    assert parsed(tmp_path, line) == [Request("ü", "/v1/completions", body.encode())]


def test_blank_lines_are_no_lines_and_the_last_needs_no_end(tmp_path: Path) -> None:
    line = json.dumps(GOOD)
    assert len(parsed(tmp_path, "", line, "  ", line)) == 2


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("{", "invalid_json", "Line 1 is no JSON object"),
        ("[1]", "invalid_json", "Line 1"),
        ('{"a": "\\ud800"', "invalid_json", "Line 1"),
        (json.dumps(GOOD | {"custom_id": 3}), "invalid_line", "'custom_id' must be a string"),
        (json.dumps({"url": "/v1/completions", "body": {}}), "invalid_line", "'custom_id'"),
        (json.dumps(GOOD | {"method": "GET"}), "invalid_line", "'method'"),
        (json.dumps(GOOD | {"url": "/metrics"}), "invalid_line", "'/metrics'"),
        (json.dumps({"custom_id": "a", "body": {}}), "invalid_line", "it is missing"),
        (json.dumps(GOOD | {"body": "x"}), "invalid_line", "'body'"),
        (json.dumps(GOOD | {"body": {"stream": True}}), "invalid_line", "'stream'"),
    ],
)
def test_what_is_no_request_says_why(tmp_path: Path, line: str, code: str, words: str) -> None:
    (found,) = parsed(tmp_path, line)
    assert isinstance(found, BadLine)
    assert found.code == code
    assert words in found.message
    known = line.startswith('{"custom_id": "a"')
    assert found.custom_id == ("a" if known else None)


def test_deep_nesting_is_a_bad_line_and_the_others_stay(tmp_path: Path) -> None:
    deep = '{"custom_id": "d", "url": "/v1/completions", "body": ' + "[" * 200_000 + "]" * 200_000 + "}"
    first, second = parsed(tmp_path, deep, json.dumps(GOOD))
    assert isinstance(first, BadLine)
    assert isinstance(second, Request)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--input-file .*nothing"):
        Lines(tmp_path / "nothing")
