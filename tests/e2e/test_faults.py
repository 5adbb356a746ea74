"""Faults on purpose in a real server: who fails, who does not, and how the server ends when it is too much."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from octavo.faults import VARIABLE
from tests.e2e.server import Server, running, start, stop, wait_for
from tests.e2e.test_crashes import FLAGS, blocks_are_back
from tests.teacher import Check, check_requests

POISON = 11
OTHERS = 31
TOKENS = 24


def complete(server: Server, prompt: list[int], seed: int, stream: bool) -> tuple[list[int], list[int], str | None]:
    """Return the prompt's ids, the output's, and the reason of the end."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "seed": seed,
        "temperature": 0.7,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": stream,
    }
    client = server.client()
    if not stream:
        done = client.post("/completions", body=body, cast_to=httpx.Response).json()
        return prompt, done["choices"][0]["token_ids"], done["choices"][0]["finish_reason"]
    tokens: list[int] = []
    finish = None
    extra = {name: body[name] for name in ("ignore_eos", "return_token_ids")}
    for chunk in client.completions.create(
        model="tiny", prompt=prompt, max_tokens=TOKENS, seed=seed, temperature=0.7, stream=True, extra_body=extra
    ):
        tokens += getattr(chunk.choices[0], "token_ids", None) or []
        finish = chunk.choices[0].finish_reason or finish
    return prompt, tokens, finish


@pytest.mark.parametrize("who", ["worker", "engine"])
def test_a_request_that_kills_a_process_fails_alone_by_name(tiny: Path, who: str) -> None:
    faults = {VARIABLE: f"{who}:crash@token={POISON}"}
    with running(tiny, *FLAGS, "--max-restarts", "4", env=faults) as server:
        with ThreadPoolExecutor(OTHERS + 1) as pool:
            prompts = [[20 + i, 21, 22, 23 + i % 3] for i in range(OTHERS)]
            good = [pool.submit(complete, server, prompt, i, i % 2 == 0) for i, prompt in enumerate(prompts)]
            bad = pool.submit(complete, server, [5, POISON, 6], 99, False)
            with pytest.raises(openai.InternalServerError) as caught:
                bad.result(timeout=200)
            answers = [future.result(timeout=200) for future in good]
        words = "crashed" if who == "worker" else "died each time it worked on this request"
        assert words in str(caught.value), caught.value
        assert [finish for _, _, finish in answers] == ["length"] * OTHERS
        blocks_are_back(server)
        restarts = server.metric(f"octavo:{who}_restarts_total")
        assert restarts <= 2 * 5 + 2, "bounded by the trial"
        assert server.get("/health").status_code == 200
    checks = [Check(prompt, tokens, temperature=0.7, seed=i) for i, (prompt, tokens, _) in enumerate(answers)]
    check_requests(tiny, checks)


def test_requests_survive_what_a_worker_meets_in_a_step(tiny: Path) -> None:
    """A device error, memory that is out, and a step that never ends, in one answer."""
    faults = {VARIABLE: "worker:device_error@step=5; worker:oom@step=12; worker:hang@step=20"}
    with running(tiny, *FLAGS, "--worker-timeout", "12", env=faults) as server:
        prompt, tokens, finish = complete(server, [30, 31, 32], 3, True)
        assert (len(tokens), finish) == (TOKENS, "length")
        blocks_are_back(server)
        wait_for(lambda: server.metric("octavo:worker_restarts_total") == 3, 60, "three restarts in the figures")
    check_requests(tiny, [Check(prompt, tokens, temperature=0.7, seed=3)])


def lose_frontend(server: Server, number: signal.Signals) -> None:
    """Stop or kill the frontend under a stream: the stream breaks, the engine drops the request, a new one serves."""
    old, engine = server.pid("frontend"), server.pid("engine")
    begun = threading.Event()

    def endless() -> None:
        stream = server.client().completions.create(
            model="tiny", prompt="a", max_tokens=3000, stream=True, extra_body={"ignore_eos": True}
        )
        for _ in stream:
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(endless)
        assert begun.wait(60)
        os.kill(old, number)
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            lost.result(timeout=120)
    wait_for(server.ready, 60, "a new frontend")
    assert server.pid("frontend") != old
    assert server.pid("engine") == engine, "the engine goes on"
    blocks_are_back(server)


def test_processes_that_stand_still_or_die_are_replaced(tiny: Path) -> None:
    with running(tiny, *FLAGS, "--process-timeout", "5") as server:
        old = server.pid("engine")
        os.kill(old, signal.SIGSTOP)
        prompt, tokens, finish = complete(server, [30, 31, 32], 3, True)
        assert (len(tokens), finish) == (TOKENS, "length")
        assert server.pid("engine") != old
        lose_frontend(server, signal.SIGSTOP)
        lose_frontend(server, signal.SIGKILL)
        assert complete(server, [30, 31, 32], 3, False)[1] == tokens
    check_requests(tiny, [Check(prompt, tokens, temperature=0.7, seed=3)])


def test_too_many_restarts_end_the_server_with_a_clear_last_line(tiny: Path) -> None:
    server = start(tiny, *FLAGS, "--max-restarts", "1")
    try:
        assert server.process.stdout is not None
        server.url = server.process.stdout.readline().strip().removeprefix("octavo is ready at ")
        assert server.url, server.text()
        for _ in range(2):
            server.kill("engine")
            if server.process.poll() is None:
                wait_for(lambda: server.ready() or server.process.poll() is not None, 60, "ready or gone")
        code = server.process.wait(30)
    finally:
        with_code = stop(server)
    assert code == with_code == 1
    last = [line for line in server.text().splitlines() if line.strip()][-1]
    assert last.startswith("octavo: "), last
    assert "2 failures in 600 s, of which 1 are allowed" in last, last
    assert "engine died: killed by SIGKILL" in last, last


def test_a_fault_that_is_not_understood_ends_the_start(tiny: Path) -> None:
    server = start(tiny, *FLAGS, env={VARIABLE: "worker:melt@step=1"})
    try:
        server.process.wait(60)
    except subprocess.TimeoutExpired:
        pass
    finally:
        code = stop(server)
    assert code == 2, server.text()
    assert "worker:melt@step=1" in server.text().splitlines()[-1]
