"""What a client may get wrong: a clear answer for it alone, and the server goes on."""

from __future__ import annotations

from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.server import Server

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def post(server: Server, path: str, body: dict[str, Any] | str) -> httpx.Response:
    """POST a body, as it is if it is text."""
    content = body if isinstance(body, str) else None
    headers = {"content-type": "application/json"}
    if content is not None:
        return httpx.post(f"{server.url}{path}", content=content, headers=headers, timeout=30)
    return httpx.post(f"{server.url}{path}", json=body, timeout=30)


def still_serves(server: Server) -> bool:
    """Whether an ordinary request is answered."""
    body = {"model": "tiny", "messages": MESSAGES, "max_tokens": 3, "temperature": 0}
    answer = post(server, CHAT, body)
    return answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] >= 1


BAD: list[tuple[str, dict[str, Any] | str, int, tuple[str, ...]]] = [
    ("malformed JSON", '{"model": "tiny", "messages": [', 400, ("JSON",)),
    ("not an object", "[1, 2]", 400, ()),
    ("unknown model", {"model": "nobody", "messages": MESSAGES}, 404, ("nobody",)),
    ("negative max_tokens", {"model": "tiny", "messages": MESSAGES, "max_tokens": -1}, 400, ("max_tokens", "-1")),
    ("no messages", {"model": "tiny"}, 400, ("messages",)),
    ("wrong type", {"model": "tiny", "messages": MESSAGES, "temperature": "hot"}, 400, ("temperature",)),
    ("temperature", {"model": "tiny", "messages": MESSAGES, "temperature": -1}, 400, ("temperature", "-1")),
    ("top_p", {"model": "tiny", "messages": MESSAGES, "top_p": 1.5}, 400, ("top_p", "1.5")),
    (
        "tools without a parser",
        {"model": "tiny", "messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f"}}]},
        400,
        ("tools",),
    ),
]


@pytest.mark.parametrize(("name", "body", "status", "parts"), BAD, ids=[case[0] for case in BAD])
def test_a_bad_request_gets_a_clear_error(
    server: Server, name: str, body: dict[str, Any] | str, status: int, parts: tuple[str, ...]
) -> None:
    answer = post(server, CHAT, body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    for part in parts:
        assert part in error["message"], error
    assert still_serves(server)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_names_both_lengths(server: Server, stream: bool) -> None:
    body = {"model": "tiny", "prompt": "x" * 600, "max_tokens": 5, "stream": stream}
    answer = post(server, "/v1/completions", body)
    assert answer.status_code == 400, answer.text
    assert "600" in answer.json()["error"]["message"]
    assert "512" in answer.json()["error"]["message"]
    assert still_serves(server)


def test_a_prompt_that_is_far_too_long_is_refused_without_being_tokenized(server: Server) -> None:
    answer = post(server, "/v1/completions", {"model": "tiny", "prompt": "x" * 20_000_000})
    assert answer.status_code == 400, answer.text
    assert "at least" in answer.json()["error"]["message"]
    assert psutil.Process(server.pid("frontend")).memory_info().rss < 300 << 20


def test_max_tokens_beyond_the_room_left_is_cut_to_it(server: Server) -> None:
    body = {"model": "tiny", "prompt": "x" * 500, "max_tokens": 100, "ignore_eos": True}
    answer = post(server, "/v1/completions", body).json()
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "length"


def test_prompts_of_vectors_are_refused_by_the_flag_that_allows_them(server: Server) -> None:
    answer = post(server, "/v1/completions", {"model": "tiny", "prompt_embeds": "UEsDBA=="})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == "prompt_embeds" and "--enable-prompt-embeds" in error["message"]


def test_unknown_route_and_method(server: Server) -> None:
    missing = httpx.get(f"{server.url}/v1/nothing", timeout=10)
    assert missing.status_code == 404
    assert "error" in missing.json()
    wrong = httpx.get(f"{server.url}{CHAT}", timeout=10)
    assert wrong.status_code == 405
    assert "error" in wrong.json()
