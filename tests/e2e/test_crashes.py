"""Processes are killed under load; streams finish, nothing is lost, nothing is left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.e2e.server import Server, running, wait_for
from tests.teacher import Check, check_requests

STREAMS = 8
MAX_TOKENS = 400
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")


@dataclass(frozen=True)
class Answer:
    """What a client saw of one stream."""

    prompt: list[int]
    tokens: list[int]
    finish: str | None


def temperature(index: int) -> float:
    """Half of the streams are greedy."""
    return 0.0 if index % 2 else 0.8


def ask(server: Server, index: int, progress: threading.Semaphore, max_tokens: int = MAX_TOKENS) -> Answer:
    """Stream one completion; releases `progress` at its first tokens."""
    stream = server.client().completions.create(
        model="tiny",
        prompt=f"stream {index}: " + "ab" * index,
        max_tokens=max_tokens,
        temperature=temperature(index),
        seed=index,
        stream=True,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )
    prompt: list[int] = []
    tokens: list[int] = []
    finish = None
    for chunk in stream:
        choice = chunk.choices[0]
        prompt = getattr(choice, "prompt_token_ids", None) or prompt
        if new := getattr(choice, "token_ids", None):
            if not tokens:
                progress.release()
            tokens += new
        finish = choice.finish_reason or finish
    return Answer(prompt, tokens, finish)


def ask_under_fire(
    server: Server, part: str, fire: Callable[[Server], object] | None = None, max_tokens: int = MAX_TOKENS
) -> list[Answer]:
    """Run the streams, kill a part (or `fire`) when all have begun, return what the clients got."""
    progress = threading.Semaphore(0)
    killed = server.pid(part)  # now: beside busy clients a walk through all processes takes seconds
    with ThreadPoolExecutor(STREAMS) as pool:
        futures = [pool.submit(ask, server, index, progress, max_tokens) for index in range(STREAMS)]
        for _ in range(STREAMS):
            assert progress.acquire(timeout=60)
        assert not any(future.done() for future in futures), "all streams must run when the kill comes"
        fire(server) if fire else os.kill(killed, signal.SIGKILL)
        answers = [future.result(timeout=200) for future in futures]
    wait_for(server.ready, 60, "ready again")
    wait_for(lambda: server.pids(part) not in ([], [killed]), 10, f"a new {part}")
    return answers


def check_all(model: Path, answers: list[Answer], max_tokens: int = MAX_TOKENS) -> None:
    """Every stream is complete and each of its tokens passes the teacher-forced check."""
    checks = []
    for index, answer in enumerate(answers):
        assert answer.finish == "length"
        assert len(answer.tokens) == max_tokens
        checks.append(Check(answer.prompt, answer.tokens, temperature=temperature(index), seed=index))
    check_requests(model, checks)


@pytest.mark.parametrize("part", ["worker-0", "engine"])
def test_streams_survive_a_kill(tiny: Path, part: str) -> None:
    with running(tiny, *FLAGS) as server:
        answers = ask_under_fire(server, part)
        assert server.get("/health").status_code == 200
        blocks_are_back(server)
    check_all(tiny, answers)


@pytest.mark.parametrize("part", ["worker-0", "worker-1", "engine"])
def test_streams_of_two_ranks_survive_a_kill(tiny: Path, part: str) -> None:
    with running(tiny, *FLAGS, "--tensor-parallel-size", "2") as server:
        answers = ask_under_fire(server, part)
        blocks_are_back(server)
    check_all(tiny, answers)


def test_streams_survive_a_worker_that_dies_while_a_new_engine_starts(tiny: Path) -> None:
    def kill_twice(server: Server) -> None:
        old = server.pid("worker-0")
        server.kill("engine")
        wait_for(lambda: [pid for pid in server.pids("worker-0") if pid != old] != [], 60, "a new worker")
        server.kill("worker-0")

    with running(tiny, *FLAGS) as server:
        answers = ask_under_fire(server, "engine", kill_twice)
        assert server.get("/health").status_code == 200
    check_all(tiny, answers)


def blocks_are_back(server: Server) -> None:
    """Wait until nothing runs and no block is in use."""
    wait_for(lambda: server.metric("octavo:num_requests_running") == 0, 20, "no running requests")
    wait_for(lambda: server.metric("octavo:kv_cache_usage_perc") == 0, 20, "all blocks free")


def test_nothing_is_left_when_the_supervisor_is_killed(tiny: Path) -> None:
    with running(tiny, *FLAGS, "--tensor-parallel-size", "2", exit_code=-signal.SIGKILL) as server:
        family = server.tree()
        assert len(family) == 5, family  # supervisor, frontend, engine, two workers
        os.kill(server.process.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(family[1:], timeout=5)
        left = [" ".join(process.cmdline()) for process in alive]
        for process in alive:
            process.kill()
        assert not left
