from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from octavo.actors.child import Parent, report
from octavo.errors import ConfigError

pytestmark = pytest.mark.timeout(60)

PROGRAMS = Path(__file__).parent / "programs.py"


def test_a_killed_parent_leaves_no_orphan_within_5_seconds_grandchildren_too(folder: Path) -> None:
    """tree -> tree -> tree -> leaf; SIGKILL of the first ends the others."""
    argv = [sys.executable, str(PROGRAMS), "tree", "2"]
    pids: list[int] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as top:
        try:
            assert top.stdout is not None
            assert top.stderr is not None
            pids.append(json.loads(top.stdout.readline())["pid"])
            for line in top.stderr:  # those below are passed on to the stderr of each parent
                said = json.loads(line)
                if "leaf" in said:
                    break
                pids.append(said["pid"])
            assert len(pids) == 4
            assert all(_runs(pid) for pid in pids)
            os.kill(top.pid, signal.SIGKILL)
            killed = time.monotonic()
            top.wait()
            while alive := [pid for pid in pids if _runs(pid)]:
                assert time.monotonic() - killed < 5, alive
                time.sleep(0.01)
        finally:
            for pid in filter(_runs, pids):
                os.kill(pid, signal.SIGKILL)


class _Writes:
    """A stdout that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def test_an_event_is_one_write_so_that_those_of_two_threads_never_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = _Writes()
    monkeypatch.setattr(sys, "stdout", stdout)
    report("ready")
    report("pulse", count=1)
    assert [write[-1] for write in stdout.writes] == ["\n", "\n"]
    events = [json.loads(write) for write in stdout.writes]
    assert [(event["event"], event.get("count")) for event in events] == [("ready", None), ("pulse", 1)]


def test_the_end_of_stdin_ends_the_process() -> None:
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS), "silent"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "still loading\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=5) == 1


def test_a_parent_that_is_gone_before_the_watch_began_is_noticed() -> None:
    """Nobody holds the other end when the process starts, and its main thread never lets another one run."""
    code = "from octavo.actors.child import watch_parent\nimport threading\n"
    code += "threading.Thread.start = lambda self: None\nwatch_parent()\nprint('alive')"
    process = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert process.returncode == 0  # /dev/null has no other end: only reading tells, and no thread does
    reading, writing = os.pipe()
    os.close(writing)
    process = subprocess.run([sys.executable, "-c", code], stdin=reading, capture_output=True, timeout=30)
    os.close(reading)
    assert (process.returncode, process.stdout) == (1, b"")


def test_stdin_is_empty_for_everybody_else() -> None:
    code = "from octavo.actors.child import watch_parent\nimport sys\nwatch_parent()\nprint(repr(sys.stdin.read()))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"''\n"


def test_a_process_that_was_not_started_by_octavo_says_so() -> None:
    with pytest.raises(ConfigError, match="OCTAVO_NAME is not set"):
        Parent.find({})


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
