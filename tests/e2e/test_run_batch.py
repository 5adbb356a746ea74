"""`octavo run-batch` for real: a batch of a tiny model, killed in the middle and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.e2e.server import Server, wait_for

COUNT = 120


def requests() -> list[dict[str, Any]]:
    """A batch of chats and completions; five of its lines cannot be answered."""
    chat = {"url": "/v1/chat/completions", "method": "POST"}
    lines: list[dict[str, Any]] = []
    for number in range(COUNT):
        common = {"model": "tiny", "max_tokens": 4 + 20 * (number % 3), "temperature": 0, "ignore_eos": True}
        if number % 2:
            lines.append(chat | {"body": common | {"messages": [{"role": "user", "content": f"q{number}"}]}})
        else:
            lines.append({"url": "/v1/completions", "body": common | {"prompt": f"p{number}"}})
    lines[3]["body"]["temperature"] = -1
    lines[5]["body"]["model"] = "nope"
    lines[7]["url"] = "/v1/nothing"
    lines[9] = {"url": "/v1/completions", "body": {"model": "tiny", "prompt": "x" * 600}}
    lines[11]["body"]["stream"] = True
    return [{"custom_id": f"c{number}"} | line for number, line in enumerate(lines)]


def command(folder: Path, server: Server) -> list[str]:
    words = ["run-batch", "-i", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"), "--url", server.url]
    return [sys.executable, "-m", "octavo", *words, "--max-concurrency", "4"]


def test_it_is_killed_again_and_again_and_each_line_is_there_once(server: Server, tmp_path: Path) -> None:
    lines = requests()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    partial, output = tmp_path / "out.jsonl.partial", tmp_path / "out.jsonl"

    def done() -> int:
        return partial.read_bytes().count(b"\n") - 1 if partial.exists() else 0

    for share in (COUNT // 4, COUNT // 2):
        with subprocess.Popen(command(tmp_path, server), stderr=subprocess.DEVNULL) as run:
            wait_for(lambda share=share, run=run: done() >= share or run.poll() is not None, 60, f"{share} lines")
            os.kill(run.pid, signal.SIGKILL)
        assert run.returncode == -signal.SIGKILL, "it was done before it was killed"
        assert not output.exists()
    before = {json.loads(line)["line"] for line in partial.read_text().splitlines()[1:] if line.endswith("}")}
    last = subprocess.run(command(tmp_path, server), capture_output=True, text=True, timeout=120, check=True)
    assert "resuming" in last.stderr
    assert len(before) >= COUNT // 2
    assert not partial.exists()
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["custom_id"] for one in results] == [line["custom_id"] for line in lines]
    codes = {number: one["error"]["code"] for number, one in enumerate(results) if one["error"] is not None}
    assert codes == {
        3: "invalid_value",
        5: "model_not_found",
        7: "invalid_line",
        9: "context_length_exceeded",
        11: "invalid_line",
    }
    for number in (0, 1, COUNT - 1):  # what is there is what the server answers
        line, got = lines[number], results[number]["response"]
        answer = httpx.post(server.url + line["url"], json=line["body"], timeout=60).json()
        assert got["status_code"] == 200
        assert got["body"]["choices"] == answer["choices"]
    assert subprocess.run(command(tmp_path, server), capture_output=True, timeout=60, check=False).returncode == 0


def test_a_server_of_its_own_goes_with_it(tiny: Path, tmp_path: Path) -> None:
    line = {"custom_id": "a", "url": "/v1/completions", "body": {"model": "m", "prompt": "x", "max_tokens": 3}}
    (tmp_path / "in").write_text(json.dumps(line) + "\n")
    words = ["run-batch", "--model", str(tiny), "--served-model-name", "m", "--dtype", "float32"]
    words += ["--kv-cache-memory-bytes", "16M", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "octavo", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out").read_text())
    assert result["response"]["body"]["usage"]["completion_tokens"] == 3
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(tiny) in command and "m" in command]
