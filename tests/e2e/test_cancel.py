"""Clients that go away: their requests end, and all that they held comes back."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.server import Server, wait_for

REQUESTS = 200


def one(server: Server, index: int) -> str:
    """Run one request of a random kind: whole, streamed, or dropped after a few chunks. Return how it ended."""
    choice = random.Random(index)
    client = server.client()
    text = "".join(choice.choice("abcdef ") for _ in range(choice.randint(1, 120)))
    length = choice.randint(1, 120)
    kind = choice.choice(["whole", "stream", "drop", "drop"])
    settings = {"model": "tiny", "prompt": text, "max_tokens": length, "temperature": choice.choice([0.0, 1.0])}
    if kind == "whole":
        answer = client.completions.create(**settings)
        assert answer.usage is not None
        return kind
    stream = client.completions.create(**settings, stream=True)
    for count, _ in enumerate(stream):
        if kind == "drop" and count >= choice.randint(0, 5):
            stream.close()
            return kind
    return "stream"


def test_after_200_requests_with_disconnects_everything_is_back(server: Server) -> None:
    with ThreadPoolExecutor(16) as pool:
        ended = list(pool.map(lambda index: one(server, index), range(REQUESTS), timeout=110))
    assert ended.count("drop") > REQUESTS / 4
    for gauge in ("octavo:num_requests_running", "octavo:num_requests_waiting", "octavo:kv_cache_usage_perc"):
        wait_for(lambda gauge=gauge: server.metric(gauge) == 0, 20, f"{gauge} is 0")
