"""What `octavo serve` checks and prepares before it starts anything."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from octavo import __version__, serve
from octavo.actors.errors import ChildrenFailed, ProcessDied
from octavo.actors.supervisor import ChildExit, Verdict
from octavo.cli.entry import main
from octavo.config import ServeConfig
from octavo.errors import ConfigError, ProtocolError
from octavo.runfolder import run_folder


def program(folder: Path, said: str, code: int = 0) -> str:
    """Write a program that says its version."""
    path = folder / "octavo-frontend"
    path.write_text(f"#!/bin/sh\necho '{said}'\nexit {code}\n")
    path.chmod(0o700)
    return str(path)


def test_a_frontend_of_this_version_is_accepted(tmp_path: Path) -> None:
    serve._check_versions(program(tmp_path, f"octavo-frontend {__version__}"))


def test_a_frontend_of_another_version_is_refused_and_both_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        serve._check_versions(program(tmp_path, "octavo-frontend 9.8.7"))
    assert "9.8.7" in caught.value.message
    assert __version__ in caught.value.message
    assert "pip install octavo-frontend==" in caught.value.message


def test_a_native_module_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve.octavo_native, "__version__", "9.8.7")
    with pytest.raises(ConfigError, match=r"octavo-native 9\.8\.7"):
        serve._check_versions(program(tmp_path, f"octavo-frontend {__version__}"))


def test_a_frontend_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reinstall octavo-frontend"):
        serve._check_versions(program(tmp_path, "", code=1))


def test_a_part_of_another_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"9\.8\.7"):
        serve._check_hello({"event": "started", "version": "9.8.7"})


def test_the_reason_of_a_part_is_what_the_user_reads() -> None:
    lines = [
        "10:00:00.000 INFO    engine    starting",
        "10:00:01.000 ERROR   engine    the file is damaged:",
        "10:00:01.000 ERROR   engine      tensor a",
    ]
    failed = ChildrenFailed("engine failed", [ProcessDied("engine", 2, lines)])
    assert serve._reason(failed).message == "the file is damaged:\ntensor a"
    failed = ChildrenFailed("engine failed", [ProcessDied("engine", 1, lines)])
    assert serve._reason(failed) is failed


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for socket names, which pytest's own need not."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_the_run_folder_is_private_and_goes_away(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    with run_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.parent == short
    assert not folder.exists()


def test_a_full_disk_is_one_clear_line(
    short: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    monkeypatch.setenv("OCTAVO_FRONTEND", program(short, f"octavo-frontend {__version__}"))
    monkeypatch.setattr(serve.log, "setup", lambda *_: None)
    monkeypatch.setattr(serve, "model_files", lambda config: None)
    monkeypatch.setattr(serve, "export_tokenizer", full)
    assert main(["serve", "m", "--port", "0"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"octavo: cannot write to {short}/octavo-\w+: No space left on device\. Free some .*", said[-1]
    )
    assert not any("Traceback" in line for line in said)
    assert [path.name for path in short.iterdir()] == ["octavo-frontend"]
    monkeypatch.setattr(serve, "run_folder", full)
    assert main(["serve", "m", "--port", "0"]) == 1
    assert capsys.readouterr().err.endswith("octavo: cannot write: No space left on device. Free some space.\n")


def test_only_folders_of_killed_servers_are_swept(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name, pid in (("octavo-dead", str(ended.pid)), ("octavo-live", str(os.getpid())), ("octavo-odd", "no number")):
        (short / name).mkdir()
        (short / name / "pid").write_text(pid)
    with run_folder():
        left = {path.name for path in short.iterdir()}
    assert "octavo-dead" not in left
    assert {"octavo-live", "octavo-odd"} <= left


def test_a_core_that_dies_in_a_trial_does_not_count() -> None:
    server = serve._Server(ServeConfig(model="m"), "frontend", cast(Any, None), Path("."), 0.0)
    died = ChildExit("engine", ProcessDied("engine", -9, []))
    assert server._on_exit(died) is None
    server._on_event("frontend", {"event": "trial", "active": True})
    assert server._on_exit(died) is Verdict.RESTART_UNCOUNTED
    assert server._on_exit(ChildExit("frontend", ProcessDied("frontend", -9, []))) is None
    assert server._on_exit(ChildExit("engine", ProcessDied("engine", 3, []))) is Verdict.GIVE_UP
    server._on_event("frontend", {"event": "trial", "active": False})
    assert server._on_exit(died) is None
