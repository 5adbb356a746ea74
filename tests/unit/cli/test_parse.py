"""`octavo parse` as a user meets it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from octavo.cli import main

TEXT = 'hm</think>Hi.\n<tool_call>\n{"name": "run", "arguments": {"n": "3"}}\n</tool_call>'


def say(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_events_are_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say(monkeypatch, TEXT)
    assert main(["parse", "--tool", "hermes", "--reasoning", "qwen3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=1) == ["reasoning", '"hm"']
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["reasoning", "content", "call", "arguments", "close", "end"]
    assert lines[2].split()[1:3] == ["0", "run"]
    assert lines[-1].split() == ["end", "stop"]


def test_pieces_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "run", "parameters": number}}]))
    say(monkeypatch, "<tool_call>\n<function=run>\n<parameter=n>\n3\n</parameter>\n</function>\n</tool_call>")
    assert main(["parse", "--tool", "qwen3_coder", "--tools", str(tools), "--pieces", "1", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["name"] for event in events if event["kind"] == "call"] == ["run"]
    arguments = "".join(event["text"] for event in events if event["kind"] == "arguments")
    assert json.loads(arguments) == {"n": 3}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tool", "hermess"], "did you mean hermes?"),
        (["--tool", "hermes", "--finish", "end"], 'finish is "end"'),
        (["--tool", "mine", "--format-file", "nowhere.toml"], "nowhere.toml"),
        (["--tool", "hermes", "--tools", "nowhere.json"], "--tools nowhere.json"),
        (["--tool", "auto"], "name the parser"),
    ],
)
def test_what_is_wrong_is_one_line(
    flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say(monkeypatch, "text")
    assert main(["parse", *flags]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("octavo: ") and shown.count("\n") == 1
    assert said in shown
