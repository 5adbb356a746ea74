"""docs/formats.md, done word for word: files, commands, what they print, a server with the format, Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from bench.frontend.processes import Programs, running
from octavo.errors import ConfigError
from tests.e2e.test_calls import Family, make_folder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")


def block(language: str, after: str) -> str:
    """Return the first block of a language behind a text of the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL)
    assert found, (language, after)
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the page says to write, and an `octavo` on the PATH that is this one."""
    (tmp_path / "answer.txt").write_text(block("text", "`answer.txt`"), encoding="utf-8")
    (tmp_path / "shout.toml").write_text(block("toml", "`shout.toml`"), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "octavo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m octavo "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(folder: Path, command: str) -> str:
    env = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60, encoding="utf-8"
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("section", ["## 3. Try it on the text", "told with its line"])
def test_commands_print_what_the_page_shows(section: str, folder: Path) -> None:
    shown: dict[str, list[str]] = {}
    for line in block("console", section).splitlines():
        if line.startswith("$ "):
            shown[line[2:]] = []
        else:
            shown[next(reversed(shown))].append(line)
    for command, lines in shown.items():
        printed = re.sub(r"call_\w{24}", "call_…", run(folder, command)).splitlines()
        assert printed == lines, command


def test_letter_by_letter_it_is_the_same(folder: Path) -> None:
    def joined(flags: str) -> dict[str, str]:
        printed = run(
            folder, f"octavo parse --tool shout --reasoning shout --format-file shout.toml --json {flags} < answer.txt"
        )
        all: dict[str, str] = {}
        for event in map(json.loads, printed.splitlines()):
            key = f"{event['kind']} {event.get('index', '')}"
            all[key] = all.get(key, "") + event.get("text", event.get("name", ""))
        return all

    assert joined("--pieces 1") == joined("")


def test_python_does_it_too(folder: Path) -> None:
    (folder / "try.py").write_text(block("python", "From Python"), encoding="utf-8")
    printed = run(folder, f'"{sys.executable}" try.py')
    assert printed.startswith('The user wants the weather. [(\'weather\', \'{"city": "Köln"')


def test_a_server_calls_tools_in_the_new_format(folder: Path) -> None:
    command = block("console", "## 4. Serve with it").removeprefix("$ octavo ").split()
    from octavo.cli.entry import parser  # the flags of the page are flags of octavo
    from octavo.config import build

    given = vars(parser().parse_args([word.replace("shout.toml", str(folder / "shout.toml")) for word in command]))
    config = build({name: value for name, value in given.items() if name not in ("command", "parser", "run")})
    try:
        programs = Programs.find()
    except ConfigError as error:
        pytest.skip(str(error))
    family = Family(
        "shout", "shout", (), (), "assistant: ", (folder / "answer.txt").read_text(encoding="utf-8").strip()
    )
    ids = make_folder(folder / "model", family)
    settings: dict[str, Any] = {
        "tool_call_parser": config.tool_call_parser,
        "reasoning_parser": config.reasoning_parser,
        "enable_auto_tool_choice": config.enable_auto_tool_choice,
        "format_files": [str(path) for path in config.format_file],
    }
    tools: Any = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
    flags = ("--step-time", "0", "--output", "ids:" + ",".join(map(str, ids)))
    with (
        running(programs, folder / "model", *flags, settings=settings) as stack,
        OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hi"}]
        answer = client.chat.completions.create(model="mock", messages=messages, tools=tools).choices[0]
    called = [
        (call.function.name, call.function.arguments)
        for call in answer.message.tool_calls or []
        if call.type == "function"
    ]
    assert called == [("weather", '{"city": "Köln", "days": 3}'), ("clock", "{}")]
    assert answer.finish_reason == "tool_calls"
