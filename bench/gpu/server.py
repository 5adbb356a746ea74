"""Start-up and online figures through `octavo serve` and `octavo bench serve`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.benchmarks.startup import answers, free_port

if TYPE_CHECKING:
    from bench.gpu.records import Results

__all__ = ["online", "serving"]

READY_S = 240.0
OCTAVO = [sys.executable, "-m", "octavo"]


@contextmanager
def serving(folder: Path, log: Path, cache: Path, *flags: str) -> Iterator[tuple[int, float]]:
    """Serve a model with random weights; yield the port and the seconds until it was ready."""
    port = free_port()
    words = [*OCTAVO, "serve", str(folder), "--load-format", "dummy", "--port", str(port), *flags]
    with log.open("a", encoding="utf-8") as sink:
        began = time.perf_counter()
        environ = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
        server = subprocess.Popen(words, stdout=sink, stderr=subprocess.STDOUT, env=environ)
        try:
            while not answers(port, "/ready"):
                if server.poll() is not None or time.perf_counter() - began > READY_S:
                    raise RuntimeError("the server did not become ready:\n" + log.read_text()[-3000:])
                time.sleep(0.02)
            yield port, time.perf_counter() - began
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def online(results: Results, port: int, folder: Path, name: str, prompts: int, *load: str) -> None:
    """Run one load of 1,024 tokens in and 128 out; note requests/s, TTFT and TPOT."""
    with tempfile.TemporaryDirectory() as kept:
        words = [*OCTAVO, "bench", "serve", "--port", str(port), "--tokenizer", str(folder), "--disable-tqdm"]
        words += ["--random-input-len", "1024", "--random-output-len", "128", "--num-prompts", str(prompts)]
        words += ["--metric-percentiles", "50,99", "--num-warmups", "2", "--temperature", "0"]
        words += ["--save-result", "--result-dir", kept, "--result-filename", "found.json", *load]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        found = json.loads((Path(kept) / "found.json").read_text())
    results.add(name, found["request_throughput"], "req/s")
    for metric in ("ttft", "tpot"):
        for percentile in (50, 99):
            key = f"p{percentile}_{metric}_ms"
            results.add(f"{name}_{metric}_p{percentile}", found[key], "ms")
