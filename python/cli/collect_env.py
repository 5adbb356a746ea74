"""`octavo collect-env`: what a report of a fault should say about the machine."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo.cli.flags import RAW
from octavo.memory import available_bytes

__all__ = ["add_command", "collect"]

_PACKAGES = (
    "octavo-native", "torch", "triton", "transformers", "tokenizers", "safetensors", "huggingface-hub", "gguf",
    "msgspec", "anyio", "pyzmq", "numpy", "llguidance", "grpcio", "openai",
)  # fmt: skip
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_PREFIXES = ("OCTAVO_", "VLLM_", "CUDA_", "NCCL_", "OMP_", "HF_", "TORCH_", "TRITON_", "PYTORCH_")


def add_command(commands: Any) -> None:
    """Add the command to `octavo`'s subparsers."""
    command = commands.add_parser(
        "collect-env",
        help="print versions and the machine, for a report",
        description="Print what a report of a fault should say about versions, the machine and the environment. "
        "Values of variables that look like secrets are left out.",
        **RAW,
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(parser=command, run=_run)


def collect() -> dict[str, dict[str, str]]:
    """Return sections of facts, each name to text; what cannot be found out says so."""
    return {
        "octavo": {"octavo": __version__, "octavo-frontend": _frontend()} | _versions(),
        "machine": _machine(),
        "devices": _devices(),
        "environment": _environment(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _frontend() -> str:
    beside = shutil.which("octavo-frontend", path=sysconfig.get_path("scripts"))
    program = os.environ.get("OCTAVO_FRONTEND") or beside or shutil.which("octavo-frontend")
    if program is None:
        return "not installed"
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error})"
    return f"{told.strip().rpartition(' ')[2]} ({program})"


def _machine() -> dict[str, str]:
    free = available_bytes()
    facts = {
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory free": "unknown" if free is None else f"{free / 2**30:.1f} GiB",
    }
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return facts
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    told = {name.strip(): value.strip() for name, value in fields.items()}
    flags = set(told.get("flags", "").split())
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile")
    facts["processor"] = told.get("model name", "unknown")
    facts["instructions"] = " ".join(name for name in wanted if name in flags) or "none of avx2, avx512, amx"
    return facts


def _devices() -> dict[str, str]:
    try:
        import torch
    except Exception as error:  # a broken torch is what such a report is for
        return {"torch": f"cannot be imported: {error}"}
    facts = {"cuda of torch": torch.version.cuda or "none", "cuda available": str(torch.cuda.is_available())}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        size = properties.total_memory / 2**30
        facts[f"cuda:{index}"] = f"{properties.name}, {properties.major}.{properties.minor}, {size:.0f} GiB"
    return facts


def _environment() -> dict[str, str]:
    return {
        name: "(set)" if any(word in name for word in _SECRET) else value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES)
    }


def _run(arguments: argparse.Namespace) -> int:
    facts = collect()
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    for section, values in facts.items():
        print(f"{section}:")
        for name, value in values.items():
            print(f"  {name}: {value}")
        if not values:
            print("  nothing set")
    return 0
