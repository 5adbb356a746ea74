"""Real worker processes, started as an engine core starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from octavo.wire.version import VERSION
from octavo.wire.worker import Init, Ready, Shutdown, WorkerHello
from tests.parity.processes import WorkerFault, WorkerProcess
from tests.tiny import make_llama

if TYPE_CHECKING:
    from collections.abc import Iterator

FAKE = ("--body", "tests.engine.fake_worker:FakeWorker")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


@pytest.fixture
def fake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    worker = WorkerProcess(3, folder, *FAKE)
    yield worker
    worker.close()


def init_of(model: str) -> Init:
    return Init(3, 1, "", model, "float32", "cpu", "auto", 0, 64, 2, 64, threads=1)


def test_hello_ready_heartbeats_and_shutdown(fake: WorkerProcess) -> None:
    hello = fake.expect(WorkerHello)
    assert hello == WorkerHello(VERSION, 3, fake.process.pid, fake.incarnation)
    fake.send(init_of("fake"))
    assert fake.expect(Ready).rank == 3
    while not any(beat.phase == "idle" for beat in fake.heartbeats):
        fake.wait_heartbeat()
    assert {beat.rank for beat in fake.heartbeats} == {3}
    fake.send(Shutdown())
    assert fake.process.wait(20) == 0


def test_a_fault_in_loading_names_the_model_and_ends_the_process(fake: WorkerProcess) -> None:
    fake.expect(WorkerHello)
    fake.send(init_of("fake?model_error=1"))
    with pytest.raises(WorkerFault) as caught:
        fake.receive()
    assert caught.value.fault.kind == "model"
    assert "cannot be loaded" in caught.value.fault.message
    assert fake.process.wait(20) == 1


def test_the_process_leaves_when_its_parent_is_gone(fake: WorkerProcess) -> None:
    fake.expect(WorkerHello)
    fake.send(init_of("fake"))
    fake.expect(Ready)
    assert fake.process.stdin is not None
    fake.process.stdin.close()  # the lifeline
    assert fake.process.wait(20) == 1


def test_stacks_are_dumped_on_demand(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    worker = WorkerProcess(0, folder, *FAKE)
    try:
        worker.expect(WorkerHello)
        os.kill(worker.process.pid, signal.SIGUSR1)
        worker.send(Shutdown())
        assert worker.process.wait(20) == 0
    finally:
        worker.close()
    assert "octavo/workers/__main__.py" in capfd.readouterr().err.replace("python/workers", "octavo/workers")


def test_torch_is_imported_after_the_hello(folder: Path, tmp_path: Path) -> None:
    worker = WorkerProcess(0, folder, "--log-level", "debug")
    try:
        worker.expect(WorkerHello)
        assert "libtorch" not in Path(f"/proc/{worker.process.pid}/maps").read_text()
        worker.send(init_of(str(make_llama(tmp_path))))
        ready = worker.expect(Ready)
        assert ready.load_ms < 60_000
        worker.send(Shutdown())
        assert worker.process.wait(30) == 0
    finally:
        worker.close()


def test_no_worker_code_imports_transformers() -> None:
    """It takes seconds, which every start and restart of a worker would pay."""
    packages = [ROOT / "python" / name for name in ("workers", "kernels", "layers", "models", "modelfiles")]
    files = [file for package in packages for file in package.rglob("*.py")]
    assert len(files) > 40
    wrong = [
        str(file) for file in files if re.search(r"^\s*(from|import) transformers", file.read_text(), re.MULTILINE)
    ]
    assert not wrong


def test_nobody_else_can_start_it() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "octavo.workers"],
        stdin=subprocess.PIPE,  # held open: its end would end the process too
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("OCTAVO_")},
    )
    with process:
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert "OCTAVO_NAME is not set" in process.stderr.read()
