"""Several conversations in one request, and the names by which requests and sessions are known."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.e2e.test_errors_page import GOOD

BATCH = "/v1/chat/completions/batch"
SAYS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "one"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "two"}],
    [{"role": "user", "content": "three"}, {"role": "assistant", "content": "3"}, {"role": "user", "content": "four"}],
]
ASKED = {"model": "tiny", "max_tokens": 8, "temperature": 0.0, "seed": 4}


def post(server: Server, path: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("n", [1, 2])
def test_a_batch_is_what_each_conversation_gets_alone(surface: Server, n: int) -> None:
    asked = ASKED | {"n": n, "temperature": 0.7 if n > 1 else 0.0}
    batch = post(surface, BATCH, messages=SAYS, **asked).json()
    alone = [post(surface, "/v1/chat/completions", messages=messages, **asked).json() for messages in SAYS]
    said = [choice["message"]["content"] for choice in batch["choices"]]
    assert said == [choice["message"]["content"] for answer in alone for choice in answer["choices"]]
    assert [choice["index"] for choice in batch["choices"]] == list(range(len(SAYS) * n))
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert batch["usage"][name] == sum(answer["usage"][name] for answer in alone)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no conversations": ({"messages": []}, "messages"),
    "one conversation": ({"messages": SAYS[0]}, "messages.0"),
    "an empty one": ({"messages": [SAYS[0], []]}, "messages.1"),
    "no role": ({"messages": [SAYS[0], [{"content": "x"}]]}, "messages.1.0.role"),
    "too long": ({"messages": [SAYS[0], [{"role": "user", "content": "x" * 600}]]}, "messages.1"),
    "stream": ({"messages": SAYS, "stream": True}, "stream"),
    "tools": ({"messages": SAYS, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    "echo": ({"messages": SAYS, "echo": True}, "echo"),
    "ids": ({"messages": SAYS, "return_token_ids": True}, "return_token_ids"),
    "logprobs": ({"messages": SAYS, "prompt_logprobs": 1}, "prompt_logprobs"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_batch_is_named(surface: Server, name: str) -> None:
    fields, param = BAD[name]
    answer = post(surface, BATCH, **{**ASKED, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(("route", "prefix"), [("chat", "chatcmpl"), ("completions", "cmpl")])
def test_a_request_is_known_by_the_name_that_its_client_gives(surface: Server, route: str, prefix: str) -> None:
    path, good = GOOD[route]
    named = post(surface, path, {"x-request-id": "from-header"}, **good)
    assert named.headers["x-request-id"] == "from-header"
    assert named.json()["id"] == f"{prefix}-from-header"
    both = post(surface, path, {"x-request-id": "from-header"}, **good, request_id="from.body:1")
    assert both.headers["x-request-id"] == "from-header"
    assert both.json()["id"] == f"{prefix}-from.body:1"
    bad = post(surface, path, **good, request_id="two words")
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "request_id")


@pytest.mark.parametrize("route", GOOD)
def test_a_session_may_be_named(surface: Server, route: str) -> None:
    path, good = GOOD[route]
    answer = post(surface, path, {"x-data-parallel-rank": "0"}, **good, session_id="s-1")
    assert answer.status_code == 200 and "x-octavo-warning" not in answer.headers
    bad = post(surface, path, **good, session_id="")
    assert bad.status_code == 400 and "session_id" in bad.json()["error"]["message"]
