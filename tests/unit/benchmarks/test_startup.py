"""`octavo bench startup` with a server of a few lines."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from octavo.benchmarks import startup
from octavo.benchmarks.cli import main
from octavo.benchmarks.startup import Phase, Start, phases, table, tree_rss_mb

SERVER = """
import http.server, signal, sys
print("12:00:00.123 INFO loading 7 files", flush=True)
polls = 0
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global polls
        polls += 1  # ready at the 20th: its log has been read by then
        self.send_response(200 if self.path == "/health" and polls >= 20 else 503)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H)
print("12:00:01.456 INFO listening", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> list[str]:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return [sys.executable, str(path), "{port}"]


def test_starts_are_timed_and_stopped(server: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.json"
    assert main(["startup", "--repeat", "2", "--output", str(out), "--", *server]) == 0
    starts = json.loads(out.read_text())
    assert len(starts) == 2
    for start in starts:
        names = [phase["name"] for phase in start["phases"]]
        assert names == ["process starts", "INFO loading # files", "INFO listening"]
        assert sum(phase["seconds"] for phase in start["phases"]) == pytest.approx(start["ready_s"])
        assert start["rss_mb"] > 1
    assert "until ready (median of 2" in capsys.readouterr().out


def test_a_server_started_in_the_background_is_stopped_too(server: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "STOP_TIMEOUT_S", 1e6)  # the test's own limit ends it then
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        start = startup.start_once(server, "/health", 30.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert start.lines[-1][1] == "stopped"


def test_a_server_that_ends_is_an_error_with_its_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["startup", "--", sys.executable, "-c", "import sys; sys.exit('no weights for {port}')"])
    assert code == 1
    assert "ended with 1" in (said := capsys.readouterr().err) and "no weights" in said


def test_a_server_that_is_never_ready(server: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["startup", "--ready-path", "/never", "--timeout-sec", "0.3", "--", *server]) == 1
    assert "not ready within 0.3 s" in capsys.readouterr().err


def test_wrong_usage() -> None:
    assert main(["startup", "--", "server"]) == 2
    assert main(["startup"]) == 2
    assert main(["startup", "--", "/nonexistent/{port}"]) == 1


def test_phases_last_until_the_next_line() -> None:
    start = Start(ready_s=2.0, lines=[(0.5, "12:00:00.1 a 1 of 2"), (1.5, "b"), (3.0, "after")])
    assert phases(start) == [Phase("process starts", 0.5), Phase("a # of #", 1.0), Phase("b", 0.5)]
    other = Start(ready_s=4.0, lines=[(0.5, "12:00:09.9 a 2 of 2"), (2.5, "b")])
    lines = table([start, other]).splitlines()
    assert lines[1].split() == ["1.500", "s", "a", "#", "of", "#"]
    assert lines[-2].split()[0] == "3.000"


def test_memory_of_a_tree_is_more_than_nothing() -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("no /proc here")
    assert tree_rss_mb(os.getpid()) > 10
