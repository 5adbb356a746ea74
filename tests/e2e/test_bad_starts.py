"""What can be wrong with files and flags: one clear message, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def refused(model: Path | str, *flags: str) -> str:
    """Run a server that must refuse to start; return what it said."""
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    last = ended.stderr.rpartition("octavo: ")[2]
    assert "INFO" not in last
    return last


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be damaged."""
    return Path(shutil.copytree(tiny, tmp_path / "model"))


def change_config(folder: Path, **fields: object) -> None:
    """Set fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_path_that_does_not_exist() -> None:
    said = refused("/nowhere/model")
    assert "/nowhere/model" in said
    assert "does not exist" in said


def test_an_architecture_not_known(copy: Path) -> None:
    change_config(copy, architectures=["PerceptronForCausalLM"])
    said = refused(copy)
    assert "PerceptronForCausalLM" in said
    assert "LlamaForCausalLM" in said


def test_truncated_safetensors(copy: Path) -> None:
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    said = refused(copy)
    assert "model.safetensors" in said


def test_pickled_weights(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    said = refused(copy)
    assert "pytorch_model.bin" in said
    assert "safetensors" in said


def test_an_unsupported_quantization(copy: Path) -> None:
    change_config(copy, quantization_config={"quant_method": "gptq", "bits": 4})
    assert "gptq" in refused(copy)


def test_missing_and_unexpected_tensors_are_named(copy: Path) -> None:
    change_config(copy, num_hidden_layers=3)
    said = refused(copy)
    assert "model.layers.2" in said


def test_a_port_in_use(tiny: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(tiny, "--port", str(port))
    assert str(port) in said
    assert "in use" in said
    assert "--port" in said


def test_a_length_beyond_the_kv_pool(tiny: Path) -> None:
    said = refused(tiny, "--max-model-len", "512", "--kv-cache-memory-bytes", "64k")
    assert "512" in said
    assert "--kv-cache-memory-bytes" in said
    assert "--max-model-len" in said


def test_a_length_beyond_the_context(tiny: Path) -> None:
    said = refused(tiny, "--max-model-len", "100000")
    assert "100000" in said
    assert "512" in said


def test_a_run_folder_that_cannot_be_made(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    assert "XDG_RUNTIME_DIR" in refused(tiny)
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert "too long" in refused(tiny)


def test_closed_standard_files_are_no_obstacle(tiny: Path) -> None:
    flags = "--served-model-name tiny --port 0 --kv-cache-memory-bytes 16M"
    command = f'exec "{sys.executable}" -m octavo serve "{tiny}" {flags} <&- '
    server = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("octavo is ready at ")
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def test_a_parser_that_nobody_knows_suggests_the_nearest(tiny: Path, tmp_path: Path) -> None:
    said = refused(tiny, "--tool-call-parser", "qwen3-coder", "--enable-auto-tool-choice")
    assert "did you mean qwen3_coder?" in said
    said = refused(tiny, "--reasoning-parser", "deepseek_r2")
    assert "did you mean deepseek_r1?" in said
    format = tmp_path / "mine.toml"
    format.write_text('name = "mine"\ntool = "mine"\n')
    said = refused(tiny, "--tool-call-parser", "mine", "--format-file", str(format))
    assert f"{format}:2" in said
