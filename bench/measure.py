"""Times of device work, beside what the device could do: medians over graph replays, and the two ceilings."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch
import triton

__all__ = ["Ceilings", "Report", "Timing", "calibrate", "commit", "time_graph"]

REPLAYS = 15


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one piece of work: the median over replays, and the distance of the quartiles."""

    median: float
    spread: float


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this device did in this very run."""

    copy: float  # bytes read plus written per second, device to device
    matmul: float  # FLOP/s of a large bf16 product in cuBLAS, random data

    def floor(self, size: float, flops: float = 0.0) -> float:
        """Return the seconds below which work that moves `size` bytes and does `flops` cannot be."""
        return max(size / self.copy, flops / self.matmul)


def time_graph(pieces: Sequence[Callable[[], object]], replays: int = REPLAYS) -> Timing:
    """Return the time of one piece: all are captured, in order, in one CUDA graph, which is then replayed.

    Pieces work on different data, so that none finds its own in the cache.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compile, choose algorithms, make workspaces
        for piece in pieces[:2] if len(pieces) > 2 else pieces:
            piece()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for piece in pieces:
            piece()
    times = []
    for _ in range(2):
        graph.replay()
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / len(pieces))
    quartiles = statistics.quantiles(times, n=4)
    graph.reset()
    return Timing(statistics.median(times), quartiles[2] - quartiles[0])


def calibrate() -> Ceilings:
    """Return the ceilings of the current device."""
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    # A kernel that copies: in a graph, copy_ becomes a node for the copy engine, which is slower.
    copy = time_graph([lambda: torch.abs(source, out=target)] * 4)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = time_graph([lambda: a @ b] * 4)
    return Ceilings(2 * source.numel() * 4 / copy.median, 2 * 8192**3 / product.median)


@dataclass(slots=True)
class Report:
    """Collects results, prints them as a table and writes them as JSON."""

    ceilings: Ceilings
    records: list[dict[str, object]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, name: str, engine: str, timing: Timing, size: float = 0.0, flops: float = 0.0) -> None:
        """Note one result in microseconds, with its floor where the work is counted."""
        floor = self.ceilings.floor(size, flops)
        self._record(name, engine, timing.median * 1e6, "us", timing.spread * 1e6, floor * 1e6)
        text = f"{name:34} {engine:22} {timing.median * 1e6:10.2f} us ±{timing.spread * 1e6:6.2f}"
        if floor:
            text += f"  floor {floor * 1e6:9.2f}  x{timing.median / floor:6.2f}"
            text += f"  {size / timing.median / 1e9:6.0f} GB/s" if size else ""
            text += f"  {flops / timing.median / 1e12:5.0f} TFLOP/s" if flops else ""
        self.lines.append(text)
        print(text, flush=True)

    def _record(self, name: str, engine: str, value: float, unit: str, spread: float, floor: float) -> None:
        self.records.append(
            {"name": name, "engine": engine, "value": round(value, 4), "unit": unit, "spread": round(spread, 4)}
            | ({"floor": round(floor, 4)} if floor else {})
        )

    def write(self, path: Path) -> None:
        """Write all records, each with versions and date, and the ceilings of the run."""
        self._record("device_copy", "torch", self.ceilings.copy / 1e9, "GB/s", 0.0, 0.0)
        self._record("matmul_bf16_8192", "cublas", self.ceilings.matmul / 1e12, "TFLOP/s", 0.0, 0.0)
        common = {
            "versions": {
                "torch": torch.__version__,
                "triton": triton.__version__,
                "cuda": torch.version.cuda,
                "device": torch.cuda.get_device_name(),
                "commit": commit(),
            },
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "command": " ".join(["python -m bench.kernels", *sys.argv[1:]]).replace(str(path), "FILE"),
        }
        path.write_text(json.dumps([record | common for record in self.records], indent=1) + "\n", encoding="utf-8")


def commit() -> str:
    """Return the commit that is measured, as far as it is known."""
    if "OCTAVO_COMMIT" in os.environ:  # a copy of the tree may come without its repository
        return os.environ["OCTAVO_COMMIT"]
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
