"""One round of one engine: start it, measure it, stop it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.benchmarks.options import from_namespace
from octavo.benchmarks.serve import Outcome, measure
from octavo.benchmarks.startup import answers, free_port, tree_rss_mb
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.compare.engines import Engine
    from bench.compare.models import Forms

__all__ = ["UNITS", "Work", "run_round"]

#: What is measured, in the order of the table. Lower is better for ms, s and MiB.
UNITS = {"ttft_ms": "ms", "stream1_tok_s": "tok/s", "stream16_tok_s": "tok/s", "ready_s": "s", "rss_mb": "MiB"}

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Work:
    """The load that every engine gets."""

    input_len: int = 128
    output_len: int = 64
    single: int = 6  # requests, one after the other
    many: int = 32  # requests, 16 at once
    warmups: int = 2
    threads: int = 2


def run_round(engine: Engine, program: str, forms: Forms, work: Work, seed: int, log: Path) -> dict[str, float]:
    """Return one value for each name of UNITS. Raises OctavoError where the engine fails or answers are missing."""
    port = free_port()
    command = [word.replace("{port}", str(port)) for word in engine.command(program, forms, work.threads)]
    env = os.environ | {name: value.replace("{threads}", str(work.threads)) for name, value in engine.env.items()}
    with _running(command, env, log) as (process, began):
        _wait_ready(engine, process, port, log, began)
        ready = time.monotonic() - began
        _load(engine, forms, work, port, seed=seed + 900, prompts=work.warmups, at_once=1)
        one = _load(engine, forms, work, port, seed=seed, prompts=work.single, at_once=1)
        many = _load(engine, forms, work, port, seed=seed + 500, prompts=work.many, at_once=16)
        memory = tree_rss_mb(process.pid)
    return {
        "ttft_ms": one.found["median_ttft_ms"],
        "stream1_tok_s": 1000 / one.found["median_tpot_ms"],
        "stream16_tok_s": many.found["output_throughput"],
        "ready_s": ready,
        "rss_mb": memory,
    }


@contextmanager
def _running(command: Sequence[str], env: dict[str, str], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    with log.open("ab") as file:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
    try:
        yield process, began
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_ready(engine: Engine, process: subprocess.Popen[bytes], port: int, log: Path, began: float) -> None:
    """Wait until the engine is ready; what it loads only with the first request counts too."""
    while not answers(port, engine.ready_path):
        if process.poll() is not None or time.monotonic() - began > READY_TIMEOUT_S:
            raise OctavoError(f"{engine.name} did not get ready; its log is {log}")
        time.sleep(0.005)


def _load(engine: Engine, forms: Forms, work: Work, port: int, *, seed: int, prompts: int, at_once: int) -> Outcome:
    options: dict[str, Any] = {
        "backend": "openai",
        "base_url": f"http://127.0.0.1:{port}",
        "model": engine.model or str(forms.folder),
        "tokenizer": str(forms.folder),
        "random_input_len": work.input_len,
        "random_output_len": work.output_len,
        "num_prompts": prompts,
        "max_concurrency": at_once,
        "temperature": 0.0,
        "disable_tqdm": True,
        "seed": seed,
        "request_timeout_sec": 300.0,
    }
    asked = dataclasses.replace(from_namespace(options), ignore_eos=engine.ignore_eos)
    outcome = asyncio.run(measure(asked))
    if outcome.metrics.failed:
        failed = next(record.failure for record in outcome.run.records if record.failure is not None)
        raise OctavoError(
            f"{engine.name}: {outcome.metrics.failed} requests failed, as {failed.kind}: {failed.message}"
        )
    return outcome
