"""What answers count, and what they call their tokens, over the routes that make tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server

SAYS = [{"role": "user", "content": "hi"}]
TOKENS = 5
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAYS, "max_tokens": TOKENS, "ignore_eos": True, "n": 2},
    "/v1/completions": {"prompt": ["hi", "you"], "max_tokens": TOKENS, "ignore_eos": True},
    "/inference/v1/generate": {"token_ids": [5, 6], "sampling_params": {"max_tokens": TOKENS, "ignore_eos": True}},
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("path", list(BODIES))
def test_every_chunk_counts_where_that_is_asked_for(surface: Server, path: str, last: bool) -> None:
    options = {"continuous_usage_stats": True, "include_usage": last}
    body = {**BODIES[path], "stream": True, "stream_options": options}
    answer = httpx.post(f"{surface.url}{path}", json=body, timeout=60)
    lines = answer.text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    outputs = 1 if "token_ids" in body else 2
    assert counts == sorted(counts) and counts[-1] == outputs * TOKENS and counts[0] < counts[-1], counts
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1
    assert all(
        chunk["usage"]["total_tokens"] == chunk["usage"]["prompt_tokens"] + count
        for chunk, count in zip(chunks, counts, strict=True)
    )
    assert (chunks[-1]["choices"] == []) == last


def test_what_a_prompt_finds_in_the_cache_and_what_it_leaves_there(surface: Server) -> None:
    block = surface.get("/server_info").json()["engine"]["block_tokens"]
    for length in (2 * block, 2 * block + 1):
        prompt = [40 + index % 7 for index in range(length)]
        kept = (length - 1) // block * block
        for wanted in ((0, kept), (kept, 0)):
            body = {"prompt": prompt, "max_tokens": 1, "cache_salt": f"usage {length}"}
            answer = httpx.post(f"{surface.url}/v1/completions", json=body, timeout=60).json()
            details = answer["usage"]["prompt_tokens_details"]
            assert (details["cached_tokens"], details["created_cache_tokens"]) == wanted, length


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_named_by_their_ids_where_that_is_asked_for(surface: Server, stream: bool) -> None:
    asked = {"return_tokens_as_token_ids": True, "return_token_ids": True, "stream": stream}
    body = {"prompt": "hi", "max_tokens": 3, "ignore_eos": True, "logprobs": 2, "echo": True, **asked}
    choices = _choices(httpx.post(f"{surface.url}/v1/completions", json=body, timeout=60), stream)
    tokens = [token for choice in choices for token in (choice["logprobs"] or {"tokens": []})["tokens"]]
    ids = [id_ for choice in choices for id_ in (choice.get("prompt_token_ids") or [])]
    ids += [id_ for choice in choices for id_ in choice.get("token_ids") or []]
    assert tokens == [f"token_id:{id_}" for id_ in ids] and len(tokens) == 3 + len(choices[0]["prompt_token_ids"])
    body = {"messages": SAYS, "max_tokens": 3, "ignore_eos": True, "logprobs": True, "top_logprobs": 2, **asked}
    choices = _choices(httpx.post(f"{surface.url}/v1/chat/completions", json=body, timeout=60), stream)
    entries = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    ids = [id_ for choice in choices for id_ in choice.get("token_ids") or []]
    assert [entry["token"] for entry in entries] == [f"token_id:{id_}" for id_ in ids] and len(ids) == 3
    assert all(top["token"].startswith("token_id:") for entry in entries for top in entry["top_logprobs"])


def _choices(answer: httpx.Response, stream: bool) -> list[dict[str, Any]]:
    if not stream:
        return list(answer.json()["choices"])
    lines = answer.text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return [choice for chunk in chunks for choice in chunk["choices"]]
