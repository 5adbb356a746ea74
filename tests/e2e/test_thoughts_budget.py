"""The budget of thoughts of `/v1/messages`, with a real engine: what is forced, what is counted, what is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.e2e.server import Server, running
from tests.tiny import make_llama, make_tokenizer

THINK, CLOSE = 258, 259
HELLO: Any = [{"role": "user", "content": "hi"}]
MAX_TOKENS = 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A tiny model that thinks until it is stopped, where the template lets it think."""
    folder = make_llama(tmp_path_factory.mktemp("thinker"), seed=1)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>", *(f"<{id}>" for id in range(CLOSE + 1, 288))])
    tokenizer.chat_template = (
        "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
        "<|start|>assistant\n{% if enable_thinking %}<think>{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    with running(folder, *flags, "--reasoning-parser", "qwen3") as running_server:
        yield running_server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=100) as client:
        yield client


def ask(client: Anthropic, thinking: Any, stream: bool = False) -> anthropic.types.Message:
    asked: Any = {
        "model": "tiny",
        "max_tokens": MAX_TOKENS,
        "messages": HELLO,
        "thinking": thinking,
        "extra_body": {"temperature": 0},
    }
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        return events.get_final_message()


def parts(message: anthropic.types.Message) -> tuple[str, str]:
    """The thoughts and the text."""
    thoughts = [block.thinking for block in message.content if block.type == "thinking"]
    return "".join(thoughts), "".join(block.text for block in message.content if block.type == "text")


def by_chat(server: Server, **fields: Any) -> tuple[list[int], str]:
    """The tokens of the same answer as a chat, and its thoughts."""
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "return_token_ids": True} | fields
    answer = server.client().chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=MAX_TOKENS, temperature=0, extra_body=extra
    )
    choice = answer.choices[0]
    return list(choice.token_ids), (choice.message.model_extra or {}).get("reasoning") or ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("budget", [1, 7])
@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_end_with_the_budget(client: Anthropic, server: Server, budget: int, stream: bool) -> None:
    tokens, reasoning = by_chat(server, thinking_token_budget=budget)
    assert tokens.index(CLOSE) == budget
    free, _ = by_chat(server)
    assert free[:budget] == tokens[:budget]
    assert CLOSE not in free[: budget + 1], "the model ends its thoughts by itself"
    message = ask(client, {"type": "enabled", "budget_tokens": budget}, stream)
    thoughts, text = parts(message)
    assert thoughts == reasoning
    assert text
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.usage.output_tokens == len(tokens)


def test_without_a_budget_the_model_thinks_to_the_end(client: Anthropic) -> None:
    message = ask(client, {"type": "adaptive"})
    assert parts(message)[1] == ""
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", MAX_TOKENS)


def test_disabled_it_does_not_think(client: Anthropic) -> None:
    assert [block.type for block in ask(client, {"type": "disabled"}).content] == ["text"]


def test_a_budget_that_leaves_nothing_is_refused(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"thinking\.budget_tokens.*24"):
        ask(client, {"type": "enabled", "budget_tokens": MAX_TOKENS})
