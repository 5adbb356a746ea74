"""The terminal's commands with a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from tests.e2e.server import Server, wait_for


def octavo(*words: str, text: str = "", timeout: float = 100) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)


def test_a_conversation_with_a_running_server(server: Server) -> None:
    words = ("chat", "--url", server.url, "--max-tokens", "8", "--temperature", "0", "--stats")
    done = octavo(*words, text="hello\n/reset\nhello\n/exit\n")
    assert done.returncode == 0, done.stderr
    figures = [line for line in done.stdout.splitlines() if "tokens in, 8 out" in line]
    assert len(figures) == 2
    assert figures[0].split(" tokens in")[0] == figures[1].split(" tokens in")[0]  # /reset forgot the first turn


def test_a_text_goes_on_as_the_api_says(server: Server) -> None:
    done = octavo("complete", "--url", server.url, "-q", "one two", "--max-tokens", "6", "--temperature", "0")
    answer = server.client().completions.create(model="tiny", prompt="one two", max_tokens=6, temperature=0)
    assert done.stdout == answer.choices[0].text + "\n"


def test_a_server_of_ones_own_comes_and_goes(tiny: Path) -> None:
    flags = ("--dtype", "float32", "--kv-cache-memory-bytes", "16M", "--max-tokens", "4")
    done = octavo("chat", str(tiny), *flags, "-q", "hello", "--stats")
    assert done.returncode == 0, done.stderr
    assert "4 out" in done.stdout
    wait_for(lambda: not _servers(tiny), 20, "the server is gone")


def test_a_server_of_ones_own_that_cannot_start_says_why(tmp_path: Path) -> None:
    done = octavo("chat", str(tmp_path), "-q", "hello")
    assert done.returncode == 1
    assert "config.json" in done.stderr
    assert "Traceback" not in done.stderr


def _servers(model: Path) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "serve" in words and str(model) in words and "0" in words and "warning" in words:
            found.append(process.pid)
    return found
