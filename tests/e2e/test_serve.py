"""The server through the official client, and its smaller routes."""

from __future__ import annotations

import httpx

from octavo import __version__
from tests.e2e.server import Server

MESSAGES = [{"role": "user", "content": "Say something."}]


def test_chat_stream_equals_non_stream(server: Server) -> None:
    settings = {"model": "tiny", "messages": MESSAGES, "max_tokens": 40, "temperature": 0}
    whole = server.client().chat.completions.create(**settings)
    chunks = list(
        server.client().chat.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert [finish for finish in finishes if finish] == [whole.choices[0].finish_reason]


def test_completion_stream_equals_non_stream(server: Server) -> None:
    settings = {"model": "tiny", "prompt": "abc", "max_tokens": 30, "temperature": 0.9, "seed": 5}
    whole = server.client().completions.create(**settings)
    chunks = list(server.client().completions.create(**settings, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_a_repeated_prompt_hits_the_prefix_cache(server: Server) -> None:
    settings = {"model": "tiny", "prompt": "a prompt that fills some blocks " * 4, "max_tokens": 2, "temperature": 0}
    server.client().completions.create(**settings)
    usage = server.client().completions.create(**settings).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert (usage.prompt_tokens_details.cached_tokens or 0) >= 96


def test_a_stop_string_ends_the_text_before_it(server: Server) -> None:
    settings = {"model": "tiny", "prompt": "abc", "max_tokens": 60, "temperature": 0}
    text = server.client().completions.create(**settings).choices[0].text
    stop = text[10:12]
    answer = server.client().completions.create(**settings, stop=[stop]).choices[0]
    assert answer.text == text[: text.index(stop)]
    assert answer.finish_reason == "stop"


def test_small_routes(server: Server) -> None:
    assert [model.id for model in server.client().models.list()] == ["tiny"]
    assert server.client().models.retrieve("tiny").id == "tiny"
    assert server.get("/v1/models/nobody").status_code == 404
    assert server.get("/health").status_code == 200
    assert server.get("/ready").status_code == 200
    assert server.get("/version").json()["version"] == __version__
    assert "octavo:generation_tokens" in server.get("/metrics").text


def test_one_log_with_process_names(server: Server) -> None:
    text = server.text()
    for name in ("serve", "engine", "worker-0", "frontend"):
        assert f" {name} " in text, text


def test_connections_are_kept_alive(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            assert client.get("/health").status_code == 200
