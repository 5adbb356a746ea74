"""The measurements: each returns seconds, or a rate."""

from __future__ import annotations

import gc
import random
import time
from statistics import median
from typing import TYPE_CHECKING

from bench.scheduler.core import BLOCK_TOKENS, Bench
from octavo.engine_core.outbox import Outbox
from octavo.wire.codec import CORE
from octavo.wire.frontend import Deltas

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["deltas_per_second", "lookup_seconds", "step_seconds"]

_PROMPT = 64


def step_seconds(running: int, waiting: int, steps: int) -> list[float]:
    """Return what each of `steps` steps costs the core with so many requests in decode and so many waiting.

    The requests that wait cannot start: all places are taken. One in 16 rows reaches a new block in a step, as with
    requests of all lengths.
    """
    blocks = running * (-(-(_PROMPT + 2 * BLOCK_TOKENS + steps) // BLOCK_TOKENS) + 2) + 64
    bench = Bench(running, blocks)
    for number in range(running):
        length = _PROMPT + number % BLOCK_TOKENS
        bench.add([number % 997 + 3, *range(3, 2 + length)], steps + 4 * BLOCK_TOKENS + running)
    while bench.core.stats(0).running < running or bench.core.stats(0).waiting:
        bench.step()
    bench.step()
    for number in range(waiting):
        bench.add([number % 1009 + 3] * _PROMPT, 16)
    gc.collect()
    gc.freeze()
    for _ in range(5):
        bench.step()
    times = [bench.step()[0] for _ in range(steps)]
    gc.unfreeze()
    return times


def lookup_seconds(tokens: int, rounds: int) -> tuple[float, float]:
    """Return what it takes to find a cached prompt of so many tokens: from its arrival to its plan; the lookup alone.

    The prompt's keys are hashed with its arrival, once.
    """
    bench = Bench(4, 2 * -(-tokens // BLOCK_TOKENS) + 64, budget=tokens + 64)
    prompt = [random.Random(1).randrange(3, 30_000) for _ in range(tokens)]
    bench.add(prompt, 1)
    while not bench.core.idle:
        bench.step()
    whole, alone = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        bench.add(prompt, 1)
        plan = bench.core.next_plan()
        whole.append(time.perf_counter() - began)
        assert plan is not None
        assert plan.new[0].computed >= tokens - BLOCK_TOKENS
        scheduler = bench.core._scheduler
        request = scheduler.requests()[0]
        began = time.perf_counter()
        scheduler.cache.longest_hit(request.chains, request.tokens)
        alone.append(time.perf_counter() - began)
        bench.core.result(bench.worker.step(plan))
    return median(whole), median(alone)


def deltas_per_second(running: int, steps: int) -> float:
    """Return how many tokens a second one core turns into encoded Deltas: plan, result, and the message's bytes."""
    bench = Bench(running, running * (-(-(_PROMPT + steps) // BLOCK_TOKENS) + 2))
    for number in range(running):
        bench.add([number + 3, *range(3, 2 + _PROMPT)], steps + 64)
    while bench.core.stats(0).running < running or bench.core.stats(0).waiting:
        bench.step()
    bench.step()
    outbox, spent, tokens = Outbox(), 0.0, 0
    for step in range(steps):
        seconds, deltas = bench.step()
        began = time.perf_counter()
        body = CORE.encode(Deltas(step, tuple(deltas)))
        spent += seconds + time.perf_counter() - began
        tokens += len(deltas)
        assert body
        assert not len(outbox)
    return tokens / spent


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the 10% and the 90% quantile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
