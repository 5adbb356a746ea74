"""Chaos: requests in a stream while processes are killed at random moments. All must finish, and be right.

`python -m tests.chaos` runs it all on SmolLM2; a short form is in tests/e2e/test_chaos.py.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.server import Server, running, wait_for
from tests.teacher import LITERAL_EXCEPTIONS, Check, check_tokens

__all__ = ["Outcome", "Plan", "run"]

SHARED = [17, 23, 31, 47, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113]  # begins half of the prompts


@dataclass(frozen=True)
class Plan:
    """One server's part."""

    model: Path
    requests: int
    kills: int
    concurrency: int = 32
    ranks: int = 1
    max_tokens: int = 24
    vocab: int = 20_000  # prompts take ids from 3 to here
    seed: int = 1
    pause_s: tuple[float, float] = (0.2, 2.0)  # from readiness to the next kill


@dataclass
class Outcome:
    """What came of a plan, or of several."""

    asked: int = 0
    finished: int = 0
    right: int = 0
    convicted: int = 0
    leaked: int = 0  # servers that did not get all blocks back
    kills: dict[str, int] = field(default_factory=lambda: {"worker": 0, "engine": 0})
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return self.finished == self.right == self.asked and not self.convicted and not self.leaked and not self.errors

    def add(self, other: Outcome) -> None:
        """Count another one in."""
        for name in ("asked", "finished", "right", "convicted", "leaked", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for part, count in other.kills.items():
            self.kills[part] += count
        self.errors += other.errors

    def line(self) -> str:
        """Say it in one line."""
        kills = ", ".join(f"{count} of {part}s" for part, count in self.kills.items())
        return (
            f"chaos: {self.finished} of {self.asked} finished, {self.right} right, {self.convicted} convicted, "
            f"{self.leaked} servers leaked blocks, kills: {kills}, {self.seconds:.0f} s"
        )


def run(plan: Plan) -> Outcome:
    """Serve, ask, kill, check."""
    began = time.monotonic()
    outcome = Outcome(asked=plan.requests)
    flags = [
        "--served-model-name", "chaos", "--dtype", "float32", "--kv-cache-memory-bytes", "256M", "--max-model-len",
        "512", "--max-num-seqs", str(plan.concurrency), "--max-restarts", "1000", "--tensor-parallel-size",
        str(plan.ranks), "--log-level", "warning",
    ]  # fmt: skip
    with running(plan.model, *flags) as server:
        done = threading.Event()
        killer = threading.Thread(target=_kill, args=(server, plan, outcome, done), daemon=True)
        killer.start()
        with ThreadPoolExecutor(plan.concurrency) as pool:
            checks = list(pool.map(lambda number: _ask(server, plan, number, outcome), range(plan.requests)))
        done.set()
        killer.join(60)
        outcome.leaked += not _blocks_are_back(server)
    answered = [check for check in checks if check is not None]
    outcome.finished = len(answered)
    outcome.right = _right(plan.model, answered, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


def _ask(server: Server, plan: Plan, number: int, outcome: Outcome) -> Check | None:
    """Ask one request, streamed or not; return what is to be checked, or None if it did not finish."""
    rng = random.Random(plan.seed * 100_000 + number)
    prompt = (SHARED if number % 2 else []) + [rng.randrange(3, plan.vocab) for _ in range(rng.randrange(4, 24))]
    temperature = 0.0 if number % 3 == 0 else 0.8
    body = {
        "model": "chaos", "prompt": prompt, "max_tokens": plan.max_tokens, "temperature": temperature, "seed": number,
        "ignore_eos": True, "return_token_ids": True, "stream": number % 4 < 2,
    }  # fmt: skip
    try:
        tokens, finish = _stream(server, body) if body["stream"] else _whole(server, body)
    except (httpx.HTTPError, AssertionError, KeyError, ValueError) as error:
        text = str(error)
        outcome.convicted += "each time it worked" in text or "crashed" in text
        outcome.errors.append(f"request {number}: {type(error).__name__}: {text[:300]}")
        return None
    if finish != "length" or len(tokens) != plan.max_tokens:
        outcome.errors.append(f"request {number}: {len(tokens)} tokens, finish {finish}")
        return None
    return Check(prompt, tokens, temperature=temperature, seed=number)


def _whole(server: Server, body: dict[str, Any]) -> tuple[list[int], str | None]:
    reply = httpx.post(f"{server.url}/v1/completions", json=body, timeout=300)
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    return choice["token_ids"], choice["finish_reason"]


def _stream(server: Server, body: dict[str, Any]) -> tuple[list[int], str | None]:
    tokens: list[int] = []
    finish, ended = None, False
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=300) as reply:
        assert reply.status_code == 200, reply.read().decode()
        for line in reply.iter_lines():
            data = line.removeprefix("data: ")
            if not line.startswith("data: "):
                continue
            if data == "[DONE]":
                ended = True
                continue
            event = json.loads(data)
            assert "error" not in event, data
            choice = event["choices"][0]
            tokens += choice.get("token_ids") or []
            finish = choice.get("finish_reason") or finish
    assert ended, "no terminal chunk"
    return tokens, finish


def _kill(server: Server, plan: Plan, outcome: Outcome, done: threading.Event) -> None:
    """Kill workers and engine cores in turn, each at a random moment while requests run."""
    rng = random.Random(plan.seed)
    for number in range(plan.kills):
        while not done.is_set() and not (server.ready() and server.metric("octavo:num_requests_open") > 0):
            time.sleep(0.05)
        if done.wait(rng.uniform(*plan.pause_s)):
            outcome.errors.append(f"only {number} of {plan.kills} kills came before the last request had ended")
            return
        part = "engine" if number % 2 else "worker"
        name = "engine" if part == "engine" else f"worker-{rng.randrange(plan.ranks)}"
        while not done.is_set():
            with contextlib.suppress(AssertionError, ProcessLookupError):
                server.kill(name)
                outcome.kills[part] += 1
                break
            time.sleep(0.05)


def _blocks_are_back(server: Server) -> bool:
    try:
        wait_for(server.ready, 60, "ready")
        wait_for(lambda: server.metric("octavo:num_requests_running") == 0, 20, "no running requests")
        wait_for(lambda: server.metric("octavo:kv_cache_usage_perc") == 0, 20, "all blocks free")
    except AssertionError:
        return False
    return True


def _right(model: Path, checks: list[Check], outcome: Outcome) -> int:
    """Check all answers; return how many are right. In fp32 few may differ literally, and only after a near-tie."""
    right = literal = 0
    for check in checks:
        try:
            verdict = check_tokens(model, check)
        except AssertionError as error:
            outcome.errors.append(str(error)[:300])
            continue
        right += 1
        literal += verdict.differs_at is None
    if len(checks) - literal > max(1, LITERAL_EXCEPTIONS * len(checks)):
        outcome.errors.append(f"{len(checks) - literal} of {len(checks)} answers differ literally from the reference")
    return right
