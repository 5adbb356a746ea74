"""`--enable-per-request-metrics`: what an answer says of its own time, against a client's clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.frontend.processes import Programs, running
from tests.e2e.test_errors_page import GOOD

STEP_S = 0.05
TOKENS = 12
#: On a busy machine the client may read late: a fault of the server's would be there each time.
TRIES = 3
FLAGS = (
    "--output",
    "ids:66",
    "--step-time",
    "50",
    "--vocab-size",
    "288",
    "--max-num-seqs",
    "1",
    "--prefill-chunk",
    "2",
)
NAMES = {"time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second"}


def asked(url: str, route: str, **fields: Any) -> tuple[dict[str, Any], float, float]:
    """Ask for a stream; return the metrics of its last chunk, and a clock's seconds to its first and last token."""
    path, good = GOOD[route]
    body = {**good, "max_tokens": TOKENS, "ignore_eos": True, "stream": True, **fields}
    first = last = 0.0
    chunks: list[dict[str, Any]] = []
    with httpx.Client(base_url=url, timeout=60) as client:
        client.get("/health")  # so that the connection is there when the clock starts
        began = time.monotonic()
        with client.stream("POST", path, json=body) as answer:
            lines = [(line, time.monotonic() - began) for line in answer.iter_lines()]
        for line, at in lines:
            if not line.startswith("data: {"):
                continue
            chunks.append(json.loads(line.removeprefix("data: ")))
            choices = chunks[-1]["choices"]
            if choices and (choices[0].get("text") or choices[0].get("delta", {}).get("content")):
                last = at
                first = first or last
    assert all("metrics" not in chunk for chunk in chunks[:-1])
    return chunks[-1]["metrics"], first, last


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_queue_and_first_token_are_a_clients_clock(tiny: Path, programs: Programs, route: str) -> None:
    settings = {"enable_per_request_metrics": True}
    with running(programs, tiny, *FLAGS, settings=settings) as stack:
        url = f"http://127.0.0.1:{stack.port}"
        for fields in ({}, {"stream_options": {"include_usage": True}}):
            for _ in range(TRIES):
                metrics, first, last = asked(url, route, **fields)
                told = [metrics["queue_time_ms"] + metrics["time_to_first_token_ms"], metrics["generation_time_ms"]]
                clock = pytest.approx([first * 1000, (last - first) * 1000], rel=0.2)
                if told == clock:
                    break
            assert set(metrics) == NAMES
            assert told == clock, (metrics, first, last)
            assert metrics["mean_itl_ms"] == pytest.approx(metrics["generation_time_ms"] / (TOKENS - 1))
            whole = metrics["time_to_first_token_ms"] + metrics["generation_time_ms"]
            assert metrics["tokens_per_second"] == pytest.approx(TOKENS / whole * 1000)
        path, good = GOOD[route]
        whole_answer = httpx.post(f"{url}{path}", json={**good, "max_tokens": 1}, timeout=60).json()
        assert set(whole_answer["metrics"]) == NAMES
        assert whole_answer["metrics"]["mean_itl_ms"] is None


def test_nothing_is_said_unless_it_is_asked_for(tiny: Path, programs: Programs) -> None:
    with running(programs, tiny, "--step-time", "0", "--vocab-size", "288") as stack:
        path, good = GOOD["chat"]
        answer = httpx.post(f"http://127.0.0.1:{stack.port}{path}", json=good, timeout=60).json()
    assert "metrics" not in answer
