"""The engine core with real worker processes: kills, faults, hangs, aborts, a frontend that goes away."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from octavo.engine_core.frontend import FrontendGone
from octavo.errors import ConfigError, ModelError
from octavo.wire.frontend import AbortRequests, Control
from tests.engine.harness import request
from tests.engine.memory_frontend import MemoryFrontend, Running, engine_config, running_engine

CONTEXT = 400


def run(config: Any, body: Callable[[Running], Awaitable[None]], window: int = 1, num_drafts: int = 0) -> Running:
    """Run a test body beside an engine."""

    async def main() -> Running:
        async with running_engine(config, window, num_drafts) as running:
            await body(running)
        return running

    return anyio.run(main)


def add_eight(frontend: MemoryFrontend, max_tokens: int = 40) -> range:
    """Add requests of mixed lengths, some with a common prefix; return their ids."""
    ids = range(1, 9)
    for number in ids:
        prompt = [7] * (13 * (number % 3)) + [number] * (2 * number)
        frontend.say(request(number, prompt, max_tokens, temperature=number % 2))
    return ids


async def idle(frontend: MemoryFrontend) -> None:
    """Wait until the engine says that nothing is left, and check that all was given back."""
    last = lambda: frontend.all_stats[-1] if frontend.all_stats else None  # noqa: E731
    await frontend.until(lambda: (stats := last()) is not None and stats.running + stats.waiting == 0)
    stats = frontend.all_stats[-1]
    assert stats.free_blocks == stats.total_blocks


@pytest.mark.parametrize(("window", "num_drafts", "ranks"), [(1, 0, 1), (2, 3, 1), (2, 0, 2)])
def test_outputs_equal_plain_evaluation(tmp_path: Path, window: int, num_drafts: int, ranks: int) -> None:
    async def body(engine: Running) -> None:
        ids = add_eight(engine.frontend)
        await engine.frontend.finished(*ids)
        for number in ids:
            engine.frontend.verify(number, CONTEXT)
        await idle(engine.frontend)

    running = run(engine_config(tmp_path, tensor_parallel_size=ranks), body, window, num_drafts)
    assert running.failure is None
    info = running.frontend.infos[0]
    assert (info.max_model_len, info.block_tokens, info.world_size) == (CONTEXT, 4, ranks)


@pytest.mark.parametrize(("ranks", "victim"), [(1, 0), (2, 0), (2, 1)])
def test_a_killed_worker_costs_nobody_a_token(tmp_path: Path, ranks: int, victim: int) -> None:
    async def body(engine: Running) -> None:
        frontend = engine.frontend
        ids = add_eight(frontend)
        for life in range(2):
            await frontend.until(lambda life=life: len(frontend.infos) == life + 1)
            shown = sum(len(seen.tokens) for seen in frontend.seen.values())
            await frontend.until(lambda shown=shown: sum(len(s.tokens) for s in frontend.seen.values()) > shown + 20)
            before = engine.group.pids
            os.kill(before[victim], signal.SIGKILL)
            await frontend.until(lambda life=life: len(frontend.faults) == life + 1)
        await frontend.finished(*ids)
        for number in ids:
            frontend.verify(number, CONTEXT)
        assert not set(before) & set(engine.group.pids), "all ranks are new processes"
        await idle(frontend)
        assert frontend.all_stats[-1].worker_restarts == 2

    running = run(engine_config(tmp_path, "fake?delay_ms=5", tensor_parallel_size=ranks), body, window=2)
    assert running.failure is None
    assert [fault.kind for fault in running.frontend.faults] == ["worker_died"] * 2
    assert "killed by SIGKILL" in running.frontend.faults[0].message


def test_a_request_that_kills_workers_fails_alone(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        frontend = engine.frontend
        ids = add_eight(frontend)
        frontend.say(request(20, [666, 1, 2], 5))
        await frontend.finished(*ids, 20)
        for number in ids:
            frontend.verify(number, CONTEXT)
        await idle(frontend)

    running = run(engine_config(tmp_path, "fake?poison=666"), body)
    assert running.frontend.seen[20].finish == "error"
    assert "crashed" in (running.frontend.seen[20].message or "")
    assert running.failure is None


def test_trials_do_not_use_up_the_restarts(tmp_path: Path) -> None:
    """Two that kill workers among others: the two crashes that make suspects count, those of the trials do not."""

    async def body(engine: Running) -> None:
        frontend = engine.frontend
        ids = add_eight(frontend)
        for number in (20, 21):
            frontend.say(request(number, [666, number], 5))
        await frontend.finished(*ids, 20, 21)
        for number in ids:
            frontend.verify(number, CONTEXT)
        await idle(frontend)

    running = run(engine_config(tmp_path, "fake?poison=666", max_restarts=3), body)
    assert {running.frontend.seen[number].finish for number in (20, 21)} == {"error"}
    assert running.failure is None
    assert running.group.restarts > 3


def test_restarts_are_bounded(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        engine.frontend.say(request(1, [666, 1, 2], 5))
        await engine.frontend.until(lambda: any(not fault.restarting for fault in engine.frontend.faults))

    running = run(engine_config(tmp_path, "fake?poison=666", max_restarts=1), body)
    assert running.failure is not None
    assert [fault.restarting for fault in running.frontend.faults] == [True, True, False]


def test_a_hung_worker_is_killed_and_replaced(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        frontend = engine.frontend
        frontend.say(request(1, [1] * 5, 30))
        await frontend.until(lambda: len(frontend.seen[1].tokens) > 3)
        os.kill(engine.group.pids[0], signal.SIGSTOP)
        await frontend.finished(1)
        frontend.verify(1, CONTEXT)

    running = run(engine_config(tmp_path, "fake?delay_ms=5", worker_timeout_s=2.0), body)
    assert [fault.kind for fault in running.frontend.faults] == ["worker_hung"]


@pytest.mark.parametrize(
    ("model", "changes", "error", "words"),
    [
        ("fake?model_error=1", {}, ModelError, "cannot be loaded"),
        (
            "fake",
            {"max_model_len": 400, "kv_cache_bytes": 40000},
            ConfigError,
            r"--max-model-len 400 .* hold \d+ tokens",
        ),
        ("fake", {"kv_cache_bytes": 500}, ConfigError, "--kv-cache-memory-bytes 500"),
    ],
)
def test_what_no_restart_would_cure_ends_the_group(
    tmp_path: Path, model: str, changes: dict[str, object], error: type[Exception], words: str
) -> None:
    async def body(engine: Running) -> None:
        await engine.frontend.until(lambda: bool(engine.frontend.faults))

    running = run(engine_config(tmp_path, model, **changes), body)
    assert running.failure is not None
    assert isinstance(running.failure.causes[-1], error)
    with pytest.raises(error, match=words):
        raise running.failure.causes[-1]
    assert [fault.restarting for fault in running.frontend.faults] == [False]
    assert running.group.restarts == 0


def test_the_context_is_what_the_pool_holds(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        await engine.frontend.until(lambda: bool(engine.frontend.infos))
        context = engine.frontend.infos[0].max_model_len
        assert 2 < context < CONTEXT
        engine.frontend.say(request(1, [1] * context, 5))
        engine.frontend.say(request(2, [1] * (context - 5), 50))
        await engine.frontend.until(lambda: 1 in engine.frontend.rejected)
        assert engine.frontend.rejected[1][0] == "too_long"
        await engine.frontend.finished(2)
        engine.frontend.verify(2, context)

    run(engine_config(tmp_path, kv_cache_bytes=60000), body)


def test_aborts_and_a_frontend_that_is_gone_give_everything_back(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        frontend = engine.frontend
        ids = add_eight(frontend, 300)
        await frontend.until(lambda: all(frontend.seen[number].tokens for number in ids))
        frontend.say(AbortRequests((1, 2, 99), "client"))
        frontend.say(FrontendGone())
        await idle(frontend)
        frontend.say(request(30, [3] * 9, 5))
        await frontend.finished(30)
        frontend.verify(30, CONTEXT)

    running = run(engine_config(tmp_path, "fake?delay_ms=2"), body, window=2)
    assert all(running.frontend.seen[number].finish is None for number in range(1, 9))


def test_control(tmp_path: Path) -> None:
    async def body(engine: Running) -> None:
        await engine.frontend.until(lambda: bool(engine.frontend.infos))
        engine.frontend.say(Control(4, "dance"))
        engine.frontend.say(Control(5, "shutdown"))
        await engine.frontend.until(lambda: len(engine.frontend.controls) == 2)

    running = run(engine_config(tmp_path), body)
    (number, error), last = running.frontend.controls
    assert (number, last) == (4, (5, None)) and running.frontend.answers[4].code == "unsupported"
    assert error is not None and error.startswith("unknown operation 'dance'; known are pause, resume, ")
    assert running.failure is None
