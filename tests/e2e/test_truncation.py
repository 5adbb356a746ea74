"""`truncate_prompt_tokens` and `truncation_side` over the routes that take prompts, beside what shows the prompt."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.server import Server

LONG = "abcdefgh" * 100
CHAT, BATCH = "/v1/chat/completions", "/v1/chat/completions/batch"
HELLO = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def post(server: Server, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def tokens(server: Server, text: str) -> list[int]:
    ids: list[int] = post(server, "/tokenize", prompt=text)["tokens"]
    return ids


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_completion_shows_what_was_kept(surface: Server, side: str) -> None:
    whole = tokens(surface, LONG)
    kept = whole[-9:] if side == "left" else whole[:9]
    asked = {"prompt": LONG, "truncate_prompt_tokens": 9, "truncation_side": side, "max_tokens": 3, "temperature": 0}
    shown = {"echo": True, "logprobs": 0, "prompt_logprobs": 0, "return_token_ids": True}
    answer = post(surface, "/v1/completions", **asked, **shown)
    (choice,) = answer["choices"]
    assert choice["prompt_token_ids"] == kept
    assert answer["usage"]["prompt_tokens"] == 9
    text = post(surface, "/detokenize", tokens=kept)["prompt"]
    assert choice["text"].startswith(text)
    assert len(choice["logprobs"]["tokens"]) == 9 + answer["usage"]["completion_tokens"]
    assert len(choice["prompt_logprobs"]) == 9
    plain = post(surface, "/v1/completions", **{**asked, "prompt": kept})
    assert choice["text"] == text + plain["choices"][0]["text"]
    rendered = httpx.post(f"{surface.url}/v1/completions/render", json=asked, timeout=60).json()
    assert [body["token_ids"] for body in rendered] == [kept]


def test_as_much_is_kept_as_the_output_leaves(surface: Server) -> None:
    context = surface.get("/v1/models").json()["data"][0]["max_model_len"]
    says = [{"role": "user", "content": LONG}]
    asked = {"truncate_prompt_tokens": -1, "max_tokens": 7, "ignore_eos": True}
    answer = post(surface, CHAT, messages=says, return_token_ids=True, tools=TOOLS, tool_choice="none", **asked)
    assert answer["usage"]["prompt_tokens"] == context - 7 == len(answer["prompt_token_ids"])
    assert answer["usage"]["completion_tokens"] == 7
    batch = post(surface, BATCH, messages=[says, HELLO], **asked)
    short = post(surface, CHAT, messages=HELLO, **asked)
    assert batch["usage"]["prompt_tokens"] == context - 7 + short["usage"]["prompt_tokens"]
    rendered = post(surface, f"{CHAT}/render", messages=says, **asked)
    again = post(surface, "/inference/v1/generate", **rendered)
    assert len(rendered["token_ids"]) == context - 7 and again["usage"]["prompt_tokens"] == context - 7


def test_what_keeps_too_much_is_refused_by_name(surface: Server) -> None:
    for asked in ({"truncate_prompt_tokens": 10**6}, {"truncate_prompt_tokens": -1, "max_tokens": 10**6}):
        for path, prompt in (("/v1/completions", {"prompt": "hi"}), (CHAT, {"messages": HELLO})):
            answer = httpx.post(f"{surface.url}{path}", json=prompt | asked, timeout=60)
            assert answer.status_code == 400, answer.text
            assert answer.json()["error"]["param"] == "truncate_prompt_tokens"
