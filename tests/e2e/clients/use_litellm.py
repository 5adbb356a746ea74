"""litellm, as a library: its providers `openai` and `hosted_vllm`, and `anthropic` for messages."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches its price list

import litellm
from pydantic import BaseModel
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run

ASKED: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
OF_REAL: Any = {"api_base": f"{REAL}/v1", "api_key": KEY, "max_retries": 0, "temperature": 0, "max_tokens": 30}
PROVIDERS = ("openai", "hosted_vllm")


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]


def models() -> None:
    listed = litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai", api_key=KEY, api_base=f"{REAL}/v1"
    )
    assert listed == ["smollm2"], listed


def chat() -> None:
    for provider in PROVIDERS:
        answer: Any = litellm.completion(model=f"{provider}/smollm2", messages=ASKED, **OF_REAL)
        assert answer.choices[0].message.content == ANSWER
        assert answer.usage.completion_tokens > 3
    claude: Any = litellm.completion(model="anthropic/smollm2", messages=ASKED, **OF_REAL | {"api_base": REAL})
    assert claude.choices[0].message.content == ANSWER


def streamed() -> None:
    for provider in PROVIDERS:
        stream: Any = litellm.completion(model=f"{provider}/smollm2", messages=ASKED, stream=True, **OF_REAL)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == ANSWER


def tools() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    functions = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    for provider in PROVIDERS:
        asked: Any = {
            "model": f"{provider}/mock",
            "api_base": f"{SCRIPTED}/v1",
            "api_key": KEY,
            "tools": functions,
        }
        messages: Any = [{"role": "user", "content": WEATHER}]
        pieces: Any = litellm.completion(messages=messages, stream=True, **asked)
        said: Any = litellm.stream_chunk_builder(list(pieces), messages=messages)
        (call,) = said.choices[0].message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": CITY, "days": 3})
        result = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}
        answer: Any = litellm.completion(messages=[*messages, said.choices[0].message, result], **asked)
        assert (answer.choices[0].message.content or "").strip() == FORECAST


def structured() -> None:
    for provider in PROVIDERS:
        answer: Any = litellm.completion(
            model=f"{provider}/smollm2", messages=ASKED, response_format=Capital, **OF_REAL
        )
        assert Capital.model_validate_json(answer.choices[0].message.content) == Capital(city="Paris")


def errors() -> None:
    refused(litellm.NotFoundError, model="openai/nope")
    refused(litellm.BadRequestError, temperature=-1)
    refused(litellm.ContextWindowExceededError, messages=[{"role": "user", "content": LONG}])
    refused(litellm.AuthenticationError, api_key="wrong")


def refused(kind: Any, **changed: Any) -> None:
    try:
        litellm.completion(**{"model": "openai/smollm2", "messages": ASKED} | OF_REAL | changed)
    except kind:
        return
    raise AssertionError(f"{changed} was taken")


run(
    "litellm",
    {
        "models": models,
        "chat": chat,
        "stream": streamed,
        "tools": tools,
        "structured": structured,
        "errors": errors,
    },
)
