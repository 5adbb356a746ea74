"""Reported faults of other servers (../shared/cases) that the engine core answers for, over HTTP, by their ids.

| case | test |
|---|---|
| CL02, CL03, CL05 | test_cl... below; the scheduler's part in tests/engine/test_traps.py |
| AB01, AB02 | test_ab... below; AB04 in tests/engine/test_traps.py |
| KV01, KV10 | test_kv... below and tests/unit/engine_core/cache/test_domain.py, test_reset.py |
| KV03, KV04, KV09 | tests/engine/test_traps.py; KV04 also below |
| KV07 | tests/unit/engine_core/cache/test_domain.py |
| ME02, ME03 | test_me... below and rust_frontend/telemetry/tests/metrics.rs |
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, running, wait_for

CONTEXT = 64


@pytest.fixture(scope="module")
def short(tiny: Path) -> Iterator[Server]:
    """A server with a context of 64 tokens and a queue that is soon full."""
    flags = ["--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M"]
    more = ["--max-model-len", str(CONTEXT), "--max-num-seqs", "8", "--max-num-batched-tokens", "32"]
    with running(tiny, *flags, *more, "--scheduling-policy", "priority", "--plans-in-flight", "2") as server:
        yield server


def post(server: Server, body: dict[str, Any], route: str = "completions") -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{route}", json={"model": "tiny", **body}, timeout=60)


def idle(server: Server) -> None:
    wait_for(lambda: server.metric("octavo:num_requests_running") == 0, 20, "no running requests")
    wait_for(lambda: server.metric("octavo:num_requests_waiting") == 0, 20, "no waiting requests")
    wait_for(lambda: server.metric("octavo:kv_cache_usage_perc") == 0, 20, "all blocks free")


@pytest.mark.parametrize("stream", [False, True])
def test_cl02_prompt_and_answer_around_the_limit(short: Server, stream: bool) -> None:
    """More than the context leaves is cut to what it leaves, on both routes and both ways."""
    for length, wanted in ((54, 10), (55, 9)):
        body = {"prompt": [5] * length, "max_tokens": 10, "ignore_eos": True, "stream": stream}
        reply = post(short, body | ({"stream_options": {"include_usage": True}} if stream else {}))
        assert reply.status_code == 200
        if stream:
            usage = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")][-1][
                "usage"
            ]
        else:
            usage = reply.json()["usage"]
            assert reply.json()["choices"][0]["finish_reason"] == "length"
        assert usage["completion_tokens"] == wanted
    refused = post(short, {"prompt": [5] * 64, "max_tokens": 10, "stream": stream})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert "64" in refused.json()["error"]["message"]


@pytest.mark.parametrize("prompt", [[], [5] * (CONTEXT + 1), "", [[]], [99_999_999], [-1]])
def test_cl03_empty_long_and_foreign_prompts_are_400(short: Server, prompt: object) -> None:
    reply = post(short, {"prompt": prompt, "max_tokens": 4})
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == "prompt"
    assert short.get("/health").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {"max_tokens": 5, "temperature": -3, "messages": [{"role": "user", "content": "hi"}]},
        {"max_tokens": 5, "messages": []},
        {"max_tokens": 5, "messages": [{"role": "user", "content": "word " * 2 * CONTEXT}]},
        {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "cache_salt": ""},
        {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "priority": "high"},
    ],
)
def test_cl05_what_is_wrong_has_its_status_before_a_stream_begins(short: Server, body: dict[str, Any]) -> None:
    plain, streamed = (post(short, body | {"stream": stream}, "chat/completions") for stream in (False, True))
    assert plain.status_code == streamed.status_code == 400
    assert plain.json() == streamed.json()


@pytest.mark.parametrize("outputs", [1, 4])
def test_ab01_ab02_a_client_that_leaves_ends_its_request(short: Server, outputs: int) -> None:
    idle(short)
    for number in range(12):
        body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 60, "ignore_eos": True, "n": outputs}
        body["stream"] = number % 2 == 0
        with contextlib.suppress(httpx.TimeoutException):
            timeout = httpx.Timeout(30, read=0.02)
            with httpx.stream("POST", f"{short.url}/v1/completions", json=body, timeout=timeout) as reply:
                next(reply.iter_lines())
    began = time.monotonic()
    idle(short)
    wait_for(lambda: short.metric("octavo:num_requests_open") == 0, 5, "no open requests")
    assert time.monotonic() - began < 20
    before = short.metric("octavo:generation_tokens_total")
    time.sleep(0.3)
    assert short.metric("octavo:generation_tokens_total") == before


def cached(reply: httpx.Response) -> int:
    assert reply.status_code == 200, reply.text
    return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_kv01_kv10_salts_keep_prompts_apart_and_a_reset_empties_the_cache(short: Server) -> None:
    def ask(**fields: object) -> httpx.Response:
        prompt = [9, *range(10, 50)]
        return post(short, {"prompt": prompt, "max_tokens": 4, "temperature": 0, "return_token_ids": True, **fields})

    first = ask(cache_salt="a")
    outputs = [first.json()["choices"][0]["token_ids"]]
    seen = []
    for fields in ({"cache_salt": "a"}, {"cache_salt": "b"}, {}, {}, {"cache_salt": "c"}):
        reply = ask(**fields)
        seen.append(cached(reply))
        outputs.append(reply.json()["choices"][0]["token_ids"])
    assert (cached(first), seen) == (0, [32, 0, 0, 32, 0])
    assert outputs == [outputs[0]] * 6
    reset = httpx.post(f"{short.url}/reset_prefix_cache", timeout=10)
    assert (reset.status_code, reset.json()) == (200, {"success": True})
    assert cached(ask()) == 0
    assert httpx.post(f"{short.url}/reset_prefix_cache?reset_running_requests=perhaps", timeout=10).status_code == 400


def test_kv04_a_shorter_prompt_after_a_longer_one(short: Server) -> None:
    long = [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]
    cold = post(short, {"messages": long[:1], "max_tokens": 3, "temperature": 0}, "chat/completions")
    assert post(short, {"messages": long, "max_tokens": 3, "temperature": 0}, "chat/completions").status_code == 200
    warm = post(short, {"messages": long[:1], "max_tokens": 3, "temperature": 0}, "chat/completions")
    assert cold.json()["choices"][0]["message"] == warm.json()["choices"][0]["message"]


def test_a_priority_is_served_by_its_value(short: Server) -> None:
    assert post(short, {"prompt": [5], "max_tokens": 2, "priority": -1}).status_code == 200
    assert short.metric("octavo:scheduler_time_seconds_count") > 0


HISTOGRAMS = (
    "time_to_first_token_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
    "request_decode_time_seconds", "e2e_request_latency_seconds", "request_inference_time_seconds",
)  # fmt: skip


def test_me02_times_are_those_of_the_requests_and_add_up(short: Server) -> None:
    idle(short)

    def sums() -> dict[str, float]:
        return {name: short.metric(f"octavo:{name}_sum") for name in HISTOGRAMS}

    before, measured = sums(), 0.0
    for number in range(20):
        began = time.monotonic()
        reply = post(short, {"prompt": [7] * (50 if number % 2 else 3), "max_tokens": 5, "ignore_eos": True})
        measured += time.monotonic() - began
        assert reply.status_code == 200
    spent = {name: value - before[name] for name, value in sums().items()}
    phases = [spent[f"request_{phase}_time_seconds"] for phase in ("queue", "prefill", "decode")]
    assert min(phases[1:]) > 0
    assert phases[0] >= 0
    assert sum(phases) == pytest.approx(spent["e2e_request_latency_seconds"], rel=1e-6)
    assert 0 < spent["time_to_first_token_seconds"] < spent["e2e_request_latency_seconds"] <= measured


def test_me03_counters_equal_what_was_delivered_and_gauges_go_back(short: Server) -> None:
    idle(short)
    names = ("generation_tokens_total", "prompt_tokens_total")  # a prompt counts once, whatever n is
    before = [short.metric(f"octavo:{name}") for name in names]
    rng = random.Random(3)

    def ask(number: int) -> tuple[int, int]:
        body = {"prompt": [rng.randrange(3, 200) for _ in range(4)], "max_tokens": 1 + number % 9, "seed": number}
        body["n"] = 1 + number % 3
        if number % 4 == 0:
            body["stop"] = ["a", "e", "t"]
        if number % 7 == 0:
            assert post(short, body | {"temperature": -1}).status_code == 400
        reply = post(short, body)
        assert reply.status_code == 200
        usage = reply.json()["usage"]
        return usage["completion_tokens"], usage["prompt_tokens"]

    with ThreadPoolExecutor(16) as pool:
        used = list(pool.map(ask, range(60)))
    idle(short)
    after = [short.metric(f"octavo:{name}") for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [sum(column) for column in zip(*used, strict=True)]
    for gauge in ("num_requests_running", "num_requests_waiting", "num_requests_open", "kv_cache_usage_perc"):
        assert short.metric(f"octavo:{gauge}") == 0
    steps = short.metric("octavo:engine_steps_total")
    wait_for(lambda: short.metric("octavo:iteration_tokens_total_count") >= steps, 5, "a step is an observation")
    config = [line for line in short.get("/metrics").text.splitlines() if line.startswith("octavo:cache_config_info{")]
    assert len(config) == 1
    assert 'block_size="16"' in config[0]
