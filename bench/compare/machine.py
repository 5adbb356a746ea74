"""The machine that a comparison ran on, and how quiet it was."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Noise", "busy_share", "describe", "probe"]

#: Instructions that decide how fast matrices are multiplied.
_FEATURES = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")


@dataclass(frozen=True, slots=True)
class Noise:
    """What else ran: the share of all cores busy while nothing of ours was, and the spread of one fixed computation."""

    busy: float  # 0 to 1
    probe_ms: float  # median
    probe_spread: float  # (slowest - fastest) / median


def describe() -> dict[str, str]:
    """Return processor, cores, instructions, memory and system."""
    info: dict[str, str] = {}
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        info.setdefault(name.strip(), value.strip())
    flags = set((info.get("flags") or info.get("Features") or "").split())
    memory = next((line.split()[1] for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), "0")
    found = {
        "processor": info.get("model name", "unknown"),
        "family and model": f"{info.get('cpu family', '?')}/{info.get('model', '?')}",
        "cores": str(len(os.sched_getaffinity(0))),
        "features": " ".join(name for name in _FEATURES if name in flags) or "unknown",
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "system": f"{os.uname().sysname} {os.uname().release}",
    }
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def busy_share(seconds: float = 1.0) -> float:
    """Return the share of all cores that is busy now, seen from a process that sleeps; 0 without /proc."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    total = sum(after) - sum(before)
    idle = after[3] + after[4] - before[3] - before[4]
    return 1 - idle / total if total else 0.0


def _ticks() -> list[int]:
    first = _read("/proc/stat").partition("\n")[0].split()[1:9]
    return [int(word) for word in first] or [0] * 8


def probe(repeats: int = 15) -> Noise:
    """Measure how quiet the machine is; takes about two seconds."""
    busy = busy_share()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        total = 0
        for number in range(400_000):
            total += number
        times.append(1000 * (time.perf_counter() - began))
    middle = statistics.median(times)
    return Noise(busy, middle, (max(times) - min(times)) / middle)
