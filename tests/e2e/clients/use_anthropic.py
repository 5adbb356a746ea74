"""anthropic: messages, their stream, tools, thoughts, counting."""

from __future__ import annotations

from typing import Any, Literal

import anthropic
from anthropic import Anthropic
from pydantic import BaseModel
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run

real = Anthropic(base_url=REAL, api_key=KEY, max_retries=0, timeout=120)
scripted = Anthropic(base_url=SCRIPTED, api_key=KEY, max_retries=0, timeout=60)
ASKED: Any = {
    "model": "smollm2",
    "max_tokens": 30,
    "system": SYSTEM,
    "messages": [{"role": "user", "content": QUESTION}],
    "extra_body": {"temperature": 0},
}


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]


def models() -> None:
    listed = real.models.list()
    assert [model.id for model in listed] == ["smollm2"]


def chat() -> None:
    message = real.messages.create(**ASKED)
    (block,) = message.content
    assert block.type == "text" and block.text == ANSWER
    assert message.stop_reason == "end_turn"
    counted = real.messages.count_tokens(model="smollm2", system=SYSTEM, messages=ASKED["messages"])
    usage = message.usage
    kept = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted.input_tokens == usage.input_tokens + kept


def streamed() -> None:
    with real.messages.stream(**ASKED) as stream:
        assert "".join(stream.text_stream) == ANSWER
        assert stream.get_final_message().usage.output_tokens > 3


def tools() -> None:
    schema: Any = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    }
    messages: Any = [{"role": "user", "content": WEATHER}]
    asked: Any = {"model": "mock", "max_tokens": 400, "tools": [{"name": "weather", "input_schema": schema}]}
    with scripted.messages.stream(messages=messages, **asked) as stream:
        said = stream.get_final_message()
    assert said.stop_reason == "tool_use"
    assert said.content[0].type == "thinking"
    (call,) = [block for block in said.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("weather", {"city": CITY, "days": 3})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "22 degrees"}
    messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": [result]}]
    answer = scripted.messages.create(messages=messages, **asked)
    assert [block.text for block in answer.content if block.type == "text"] == [FORECAST]


def structured() -> None:
    message = real.messages.parse(**ASKED | {"max_tokens": 60}, output_format=Capital)
    assert message.parsed_output == Capital(city="Paris")


def errors() -> None:
    refused(anthropic.NotFoundError, "not_found_error", model="nope")
    refused(anthropic.BadRequestError, "invalid_request_error", max_tokens=0)
    refused(anthropic.BadRequestError, "invalid_request_error", messages=[{"role": "user", "content": LONG}])
    refused(anthropic.AuthenticationError, "authentication_error", client=real.with_options(api_key="wrong"))


def refused(kind: Any, name: str, client: Anthropic = real, **changed: Any) -> None:
    try:
        client.messages.create(**ASKED | changed)
    except kind as error:
        assert error.body["error"]["type"] == name, error
        assert error.request_id
    else:
        raise AssertionError(f"{changed} was taken")


run(
    "anthropic",
    {
        "models": models,
        "chat": chat,
        "stream": streamed,
        "tools": tools,
        "structured": structured,
        "errors": errors,
    },
)
