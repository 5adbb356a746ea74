"""Decode steps, prefill and batches through `octavo.LLM`: engine core, sockets, worker processes."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.llm import LLM, SamplingParams
from octavo.wire.frontend import AddRequest, Delta
from octavo.wire.frontend import SamplingParams as WireSampling

if TYPE_CHECKING:
    from bench.gpu.records import Results
    from octavo.engine_core.local import LocalEvent

__all__ = ["batch", "decode", "open_model", "prefill", "prefix_hit"]

PROMPT, OUTPUT = 128, 256


def open_model(folder: Path, **settings: object) -> LLM:
    """Load the model of `folder` with random weights."""
    return LLM(folder, load_format="dummy", **{"max_model_len": 36864, "max_num_seqs": 256, **settings})


class _Clock:
    """A channel that notes when each step's tokens came, and for how many requests."""

    def __init__(self, requests: int) -> None:
        self.steps: list[tuple[float, int]] = []
        self.error: str | None = None
        self._open = requests
        self.done = threading.Event()

    def put(self, events: Sequence[LocalEvent]) -> None:
        self.steps.append((time.perf_counter(), len(events)))
        for event in events:
            if not isinstance(event, Delta):
                self.error = event.message
                self._open -= 1
            elif event.finish is not None:
                self.error = self.error or event.finish.message
                self._open -= 1
        if self._open == 0:
            self.done.set()

    def fail(self, message: str) -> None:
        self.error = message
        self.done.set()


@dataclass(slots=True)
class _Numbers:
    """Ids of requests, all different."""

    next: int = 1 << 40


_numbers = _Numbers()


def run(llm: LLM, rows: int, prompt: int, output: int, seed: int) -> tuple[float, _Clock]:
    """Run `rows` requests that are there at once, greedy; return when they were sent, and when tokens came."""
    rng = random.Random(seed)
    requests = []
    for _ in range(rows):
        ids = array("i", [rng.randrange(llm.vocab_size) for _ in range(prompt)])
        _numbers.next += 1
        sampling = WireSampling(0, output, 0.0)
        requests.append(AddRequest(_numbers.next, 1, f"b{_numbers.next}", ids.tobytes(), b"", sampling, arrival_us=0))
    clock = _Clock(rows)
    began = time.perf_counter()
    llm._model.engine.submit(requests, clock)
    if not clock.done.wait(300.0) or clock.error is not None:
        raise RuntimeError(f"{rows} x {prompt}: {clock.error or 'not done in time'}")
    return began, clock


def decode(results: Results, llm: LLM, name: str, rows: int, prompt: int = PROMPT, output: int = OUTPUT) -> None:
    """Note the median time of a step in which all rows decode: of two repetitions, the one with the lower median."""
    best: tuple[float, float] | None = None
    for _ in range(2):
        _, clock = run(llm, rows, prompt, output, seed=rows)
        full = [at for at, count in clock.steps if count == rows]
        gaps = [1e3 * (after - before) for before, after in itertools.pairwise(full)][4:-4]
        quartiles = statistics.quantiles(gaps, n=4)
        found = (statistics.median(gaps), quartiles[2] - quartiles[0])
        best = found if best is None else min(best, found)
    assert best is not None
    results.add(name, best[0], "ms", best[1])


def prefill(results: Results, llm: LLM, name: str, rows: int, prompt: int, *, rate: bool) -> None:
    """Note how long prompts take until each has its first token, or their tokens a second."""
    times = []
    for seed in range(6):  # the first one meets shapes for the first time
        began, clock = run(llm, rows, prompt, 1, seed=1000 * (rows + prompt) + seed)
        times.append(clock.steps[-1][0] - began)
    quartiles = statistics.quantiles(times[1:], n=4)
    median, spread = statistics.median(times[1:]), quartiles[2] - quartiles[0]
    if rate:
        results.add(name, rows * prompt / median, "tok/s", rows * prompt * spread / median**2)
    else:
        results.add(name, median, "s", spread)


def prefix_hit(results: Results, llm: LLM, name: str, prompt: int) -> None:
    """Note the time to the first token of a prompt whose blocks are all in the pool."""
    times = []
    for _ in range(6):
        began, clock = run(llm, 1, prompt, 1, seed=77)
        times.append(1e3 * (clock.steps[0][0] - began))
    warm = sorted(times[2:])
    results.add(name, statistics.median(warm), "ms", warm[-1] - warm[0])


def batch(results: Results, llm: LLM, name: str, requests: int, prompt: int, output: int) -> None:
    """Note the requests a second of a batch, by `LLM.generate`: of two, the second; the spread is their distance."""
    rng = random.Random(prompt)
    vocab = llm.vocab_size
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    rates = []
    for _ in range(2):
        prompts = [[rng.randrange(vocab) for _ in range(prompt)] for _ in range(requests)]
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        rates.append(requests / (time.perf_counter() - began))
        wrong = [one.error or "too few" for one in outputs if len(one.outputs[0].token_ids) != output]
        if wrong:
            raise RuntimeError(f"{name}: {len(wrong)} requests did not give {output} tokens: {wrong[0]}")
    results.add(name, rates[1], "req/s", abs(rates[1] - rates[0]))
