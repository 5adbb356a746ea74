"""`/v1/responses` through the official SDK: scripted outputs of five families, and a real tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from bench.frontend.processes import Programs
from tests.e2e.server import Server, wait_for
from tests.e2e.test_calls import CALLS, FAMILIES, SAID, THOUGHT, TOOLS, at_pace, make_folder

FUNCTIONS: Any = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]


def gathered(response: Response) -> dict[str, Any]:
    """What a response says, without what is drawn."""
    items: list[Any] = []
    for item in response.output:
        if item.type == "message":
            items += [("text", part.text) for part in item.content if part.type == "output_text"]
        elif item.type == "reasoning":
            items += [("thoughts", part.text) for part in item.content or []]
        elif item.type == "function_call":
            assert item.call_id
            items.append((item.name, json.loads(item.arguments)))
    assert response.usage is not None
    thoughts = response.usage.output_tokens_details.reasoning_tokens
    return {"items": items, "status": response.status, "tokens": (response.usage.output_tokens, thoughts)}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_official_client_gathers_the_same(name: str, programs: Programs, tmp_path: Path) -> None:
    family = FAMILIES[name]
    ids = make_folder(tmp_path, family)
    results = []
    for step in (1, 4, len(ids)):
        with (
            at_pace(step, programs, tmp_path, family, ids) as stack,
            OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", max_retries=0) as client,
        ):
            results.append(gathered(client.responses.create(model="mock", input="hi", tools=FUNCTIONS)))
            with client.responses.stream(model="mock", input="hi", tools=FUNCTIONS) as stream:
                events = list(stream)
                results.append(gathered(stream.get_final_response()))
            assert [event.sequence_number for event in events] == list(range(len(events)))
            assert events[-1].type == "response.completed"
    assert all(result == results[0] for result in results)
    assert results[0]["items"] == [("thoughts", THOUGHT), ("text", SAID), *CALLS[: family.calls]]
    assert results[0]["status"] == "completed"
    assert results[0]["tokens"][0] == len(ids)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=100) as client:
        yield client


def test_a_conversation_is_kept_and_goes_on(client: OpenAI) -> None:
    first = client.responses.create(model="tiny", input="hi", max_output_tokens=8, temperature=0, metadata={"a": "b"})
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(first.id, order="asc")
    assert [item.type for item in items] == ["message"]
    second = client.responses.create(
        model="tiny", input="more", previous_response_id=first.id, max_output_tokens=8, temperature=0
    )
    history: Any = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "more"},
    ]
    sent = client.responses.create(model="tiny", input=history, max_output_tokens=8, temperature=0, store=False)
    assert sent.output_text == second.output_text
    assert sent.usage is not None and second.usage is not None
    assert sent.usage.input_tokens == second.usage.input_tokens
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(BadRequestError, match="previous_response_id"):
        client.responses.create(model="tiny", input="more", previous_response_id=first.id)


class Choice(BaseModel):
    """A schema as a class."""

    pick: Literal["x", "y"]


def test_a_class_is_parsed(client: OpenAI) -> None:
    response = client.responses.parse(model="tiny", input="hi", text_format=Choice, max_output_tokens=100)
    assert response.output_parsed is not None and response.output_parsed.pick in ("x", "y")


def test_a_response_runs_in_the_background(client: OpenAI) -> None:
    started = client.responses.create(model="tiny", input="hi", background=True, max_output_tokens=8, temperature=0)
    assert started.status == "queued"
    wait_for(lambda: client.responses.retrieve(started.id).status in ("completed", "incomplete"), 30, "the response")
    whole = client.responses.create(model="tiny", input="hi", max_output_tokens=8, temperature=0)
    assert client.responses.retrieve(started.id).output_text == whole.output_text
    long = client.responses.create(
        model="tiny", input="hi", background=True, extra_body={"ignore_eos": True, "max_output_tokens": 400}
    )
    assert client.responses.cancel(long.id).status in ("cancelled", "incomplete")


def test_what_is_not_served_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="web_search"):
        client.responses.create(model="tiny", input="hi", tools=[{"type": "web_search"}])
    with pytest.raises(BadRequestError, match="mcp"):
        mcp: Any = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1"}
        client.responses.create(model="tiny", input="hi", tools=[mcp])
