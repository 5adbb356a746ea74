"""The GPUs of this machine, asked for without torch and without a context on any of them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError

__all__ = [
    "Gpu",
    "choose_device",
    "choose_threads",
    "chunk_align",
    "default_batched_tokens",
    "torch_has_cuda",
    "visible_gpus",
]

#: Tokens of a step by device. On a CPU a step is bound by arithmetic early; a large GPU takes a prompt of 16k at once,
#: or prompts of 1k, 2k … that fill as much, beside 256 rows that decode.
_CPU_TOKENS, _GPU_TOKENS, _LARGE_GPU_TOKENS = 2048, 8192, 16384 + 256
_LARGE_GPU_BYTES = 70 << 30
#: Attention of a chunk is fastest behind a prefix of so many tokens times a number (kernels/triton/fresh.py).
_GPU_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that CUDA programs of this process may use."""

    total_bytes: int


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; none where there is no driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() != 0:
            return ()
    except (OSError, AttributeError):
        return ()
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return ()
        sizes = [_total_bytes(nvml, index) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()
    return tuple(Gpu(sizes[index]) for index in _visible(len(sizes), environ.get("CUDA_VISIBLE_DEVICES")))


def _total_bytes(nvml: ctypes.CDLL, index: int) -> int:
    handle, memory = ctypes.c_void_p(), _Memory()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return 0
    return int(memory.total) if nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0 else 0


def _visible(count: int, listed: str | None) -> list[int]:
    """Return the indices that a CUDA_VISIBLE_DEVICES leaves of `count`; a name counts, whatever it stands for."""
    if listed is None:
        return list(range(count))
    found: list[int] = []
    for word in (part.strip() for part in listed.split(",")):
        if word.startswith(("GPU-", "MIG-")):
            found.append(min(len(found), count - 1))
        elif word.isdigit() and int(word) < count:
            found.append(int(word))
        else:  # CUDA stops at the first that does not exist
            break
    return found if count else []


def torch_has_cuda() -> bool:
    """Return whether the installed torch was built for CUDA, by its version file: importing it takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return re.search(r"^cuda\b[^=\n]*= *['\"]", text, re.MULTILINE) is not None


def choose_device(asked: str, ranks: int, gpus: tuple[Gpu, ...], cuda: bool) -> str:
    """Return "cpu" or "cuda" for `asked`, which may be "auto". `cuda`: whether torch can use GPUs.

    Raises ConfigError for "cuda" where there are not `ranks` GPUs or torch cannot use them.
    """
    if asked == "cpu" or (asked == "auto" and not (gpus and cuda)):
        return "cpu"
    if not cuda:
        raise ConfigError(
            "--device cuda: the installed torch is built without CUDA; install one that has it, or take --device cpu",
            "device",
        )
    if not gpus:
        raise ConfigError("--device cuda: no NVIDIA GPU is visible here; take --device cpu", "device")
    if len(gpus) < ranks:
        raise ConfigError(
            f"--tensor-parallel-size {ranks} needs as many GPUs, and {len(gpus)} can be seen; lower it"
            + (", or take --device cpu" if asked == "auto" else ""),
            "tensor_parallel_size",
        )
    return "cuda"


def default_batched_tokens(device: str, gpus: tuple[Gpu, ...]) -> int:
    """Return the tokens of a step where the user gave none."""
    if device == "cpu":
        return _CPU_TOKENS
    return _LARGE_GPU_TOKENS if min(gpu.total_bytes for gpu in gpus) >= _LARGE_GPU_BYTES else _GPU_TOKENS


def chunk_align(device: str, batched_tokens: int) -> int:
    """Return the tokens at multiples of which a prompt is cut that does not fit a step: what kernels do best with.

    1 where steps of `batched_tokens` tokens are too small for it to matter.
    """
    return _GPU_CHUNK if device != "cpu" and batched_tokens >= _GPU_TOKENS else 1


def choose_threads(asked: int, ranks: int, cpus: int | None = None) -> int:
    """Return `asked`, or if it is 0 this rank's share of the CPUs that this process may use, but one.

    The one is for the frontend, the core and the system: where OpenMP's threads compete with other processes for their
    CPUs, every parallel region waits for the thread that has none (measured: 2 threads on 2 shared cores decode less
    than half as fast as 1).
    """
    if asked:
        return asked
    if cpus is None:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, (cpus - 1) // ranks)
