"""openai (Python): chats, completions and responses."""

from __future__ import annotations

import json
from typing import Any, Literal

from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from pydantic import BaseModel
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run

real = OpenAI(base_url=f"{REAL}/v1", api_key=KEY, max_retries=0, timeout=120)
scripted = OpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY, max_retries=0, timeout=60)
ASKED: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
PARAMETERS: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]
    country: Literal["France", "Germany"]


def models() -> None:
    assert [model.id for model in real.models.list()] == ["smollm2"]
    assert real.models.retrieve("smollm2").id == "smollm2"


def chat() -> None:
    answer = real.chat.completions.create(model="smollm2", messages=ASKED, temperature=0, max_tokens=30)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage is not None and usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    response = real.responses.create(
        model="smollm2", instructions=SYSTEM, input=QUESTION, temperature=0, max_output_tokens=30
    )
    assert response.output_text == ANSWER
    assert real.responses.retrieve(response.id).output_text == ANSWER
    text = real.completions.create(model="smollm2", prompt="1, 2, 3, 4,", temperature=0, max_tokens=4, echo=True)
    assert text.choices[0].text.startswith("1, 2, 3, 4, 5")


def streamed() -> None:
    asked: Any = {"model": "smollm2", "messages": ASKED, "temperature": 0, "max_tokens": 30}
    chunks = list(real.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 3
    with real.chat.completions.stream(**asked) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.content == ANSWER
    with real.responses.stream(
        model="smollm2", instructions=SYSTEM, input=QUESTION, temperature=0, max_output_tokens=30
    ) as events:
        events.until_done()
        assert events.get_final_response().output_text == ANSWER


def tools() -> None:
    functions: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
    messages: Any = [{"role": "user", "content": WEATHER}]
    with scripted.chat.completions.stream(model="mock", messages=messages, tools=functions) as stream:
        stream.until_done()
        said = stream.get_final_completion().choices[0]
    assert said.finish_reason == "tool_calls" and said.message.tool_calls
    call = said.message.tool_calls[0]
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": CITY, "days": 3}
    messages += [said.message, {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}]
    answer = scripted.chat.completions.create(model="mock", messages=messages, tools=functions)
    assert (answer.choices[0].message.content or "").strip() == FORECAST

    flat: Any = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}]
    response = scripted.responses.create(model="mock", input=WEATHER, tools=flat)
    (called,) = [item for item in response.output if item.type == "function_call"]
    assert json.loads(called.arguments) == {"city": CITY, "days": 3}
    output: Any = {"type": "function_call_output", "call_id": called.call_id, "output": "22 degrees"}
    after = scripted.responses.create(model="mock", previous_response_id=response.id, input=[output], tools=flat)
    assert after.output_text.strip() == FORECAST

    forced = real.chat.completions.create(
        model="smollm2", messages=ASKED, tools=functions, tool_choice="required", max_tokens=200
    )
    forced_calls = forced.choices[0].message.tool_calls
    assert forced_calls and forced_calls[0].type == "function" and forced_calls[0].function.name == "weather"


def structured() -> None:
    parsed = real.chat.completions.parse(
        model="smollm2", messages=ASKED, response_format=Capital, temperature=0, max_tokens=60
    )
    assert parsed.choices[0].message.parsed == Capital(city="Paris", country="France")
    response = real.responses.parse(
        model="smollm2",
        instructions=SYSTEM,
        input=QUESTION,
        text_format=Capital,
        temperature=0,
        max_output_tokens=60,
    )
    assert response.output_parsed == Capital(city="Paris", country="France")


def errors() -> None:
    refused(NotFoundError, "model_not_found", model="nope")
    refused(BadRequestError, "invalid_value", temperature=-1)
    refused(BadRequestError, "context_length_exceeded", messages=[{"role": "user", "content": LONG}])
    refused(AuthenticationError, "invalid_api_key", client=real.with_options(api_key="wrong"))


def refused(kind: Any, code: str, client: OpenAI = real, **changed: Any) -> None:
    asked = {"model": "smollm2", "messages": ASKED, "max_tokens": 1} | changed
    try:
        client.chat.completions.create(**asked)
    except kind as error:
        assert error.code == code, error
        assert error.request_id
    else:
        raise AssertionError(f"{changed} was taken")


run(
    "openai",
    {
        "models": models,
        "chat": chat,
        "stream": streamed,
        "tools": tools,
        "structured": structured,
        "errors": errors,
    },
)
