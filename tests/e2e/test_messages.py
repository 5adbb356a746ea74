"""Anthropic's API through its official SDK: scripted outputs of five families, and a real tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from bench.frontend.processes import Programs
from tests.e2e.server import Server
from tests.e2e.test_calls import CALLS, FAMILIES, SAID, THOUGHT, TOOLS, at_pace, make_folder

HELLO: Any = [{"role": "user", "content": "hi"}]
WEATHER: Any = [
    {
        "name": tool["function"]["name"],
        "input_schema": tool["function"]["parameters"],
    }
    for tool in TOOLS
]


def gathered(message: anthropic.types.Message) -> dict[str, Any]:
    """What a message says, without what is drawn."""
    blocks: list[Any] = []
    for block in message.content:
        if block.type == "text":
            blocks.append(("text", block.text))
        elif block.type == "thinking":
            assert block.signature
            blocks.append(("thinking", block.thinking))
        elif block.type == "tool_use":
            assert block.id
            blocks.append((block.name, block.input))
    return {
        "blocks": blocks,
        "stop_reason": message.stop_reason,
        "stop_sequence": message.stop_sequence,
        "tokens": (message.usage.input_tokens, message.usage.output_tokens),
    }


def answers(client: Anthropic, **asked: Any) -> Iterator[dict[str, Any]]:
    """Ask without and with streaming; yield what the SDK gathers."""
    asked = {"model": "mock", "max_tokens": 400, "messages": HELLO} | asked
    yield gathered(client.messages.create(**asked))
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "".join(block.text for block in final.content if block.type == "text")
    yield gathered(final)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_official_client_gathers_the_same(name: str, programs: Programs, tmp_path: Path) -> None:
    family = FAMILIES[name]
    ids = make_folder(tmp_path, family)
    results = []
    for step in (1, 4, len(ids)):
        with (
            at_pace(step, programs, tmp_path, family, ids) as stack,
            Anthropic(base_url=f"http://127.0.0.1:{stack.port}", api_key="none", max_retries=0) as client,
        ):
            results += answers(client, tools=WEATHER)
    assert all(result == results[0] for result in results)
    expected = [("thinking", THOUGHT), ("text", SAID), *CALLS[: family.calls]]
    assert results[0]["blocks"] == expected
    assert results[0]["stop_reason"] == "tool_use"
    assert results[0]["tokens"][1] == len(ids)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=100) as client:
        yield client


def test_a_real_model_answers_the_same_streamed_or_not(client: Anthropic) -> None:
    asked: Any = {"model": "tiny", "max_tokens": 24, "extra_body": {"temperature": 0.0}, "system": "Be brief."}
    whole, streamed = answers(client, **asked)
    assert whole["blocks"] == streamed["blocks"]
    assert whole["tokens"][1] == streamed["tokens"][1] <= 24
    assert whole["stop_reason"] == streamed["stop_reason"]
    counted = client.messages.count_tokens(model="tiny", messages=HELLO, system="Be brief.")
    cold = client.messages.create(messages=HELLO, **asked)
    usage = cold.usage
    kept = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted.input_tokens == usage.input_tokens + kept


def test_a_schema_holds(client: Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "y"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    message = client.messages.create(
        model="tiny",
        max_tokens=60,
        messages=HELLO,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert message.content[0].type == "text"
    assert json.loads(message.content[0].text) in ({"a": "x"}, {"a": "y"})


def test_the_client_raises_its_own_errors(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="nope"):
        client.messages.create(model="nope", max_tokens=1, messages=HELLO)
    image: Any = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}}
    with pytest.raises(anthropic.BadRequestError, match='"image" are not supported') as caught:
        client.messages.create(model="tiny", max_tokens=1, messages=[{"role": "user", "content": [image]}])
    assert caught.value.request_id
    assert caught.value.type == "invalid_request_error"
