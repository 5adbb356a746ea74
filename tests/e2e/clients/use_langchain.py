"""langchain-openai: chats by /v1/chat/completions and by /v1/responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import openai
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run

ASKED: Any = [SystemMessage(SYSTEM), HumanMessage(QUESTION)]


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]


@tool
def weather(city: str, days: int) -> str:
    """Tell the weather of a city."""
    assert (city, days) == (CITY, 3)
    return "22 degrees"


def models_of(url: str, name: str, **more: Any) -> Iterator[ChatOpenAI]:
    """Yield a model for each API."""
    for responses in (False, True):
        given: Any = {"model": name, "base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0, "timeout": 120}
        yield ChatOpenAI(**given | more, use_responses_api=responses)


def real(**more: Any) -> Iterator[ChatOpenAI]:
    return models_of(REAL, "smollm2", **{"temperature": 0, "max_tokens": 60} | more)


def chat() -> None:
    for model in real():
        answer = model.invoke(ASKED)
        assert answer.text == ANSWER
        assert answer.usage_metadata is not None and answer.usage_metadata["output_tokens"] > 3


def streamed() -> None:
    for model in real():
        pieces = [chunk.text for chunk in model.stream(ASKED)]
        assert "".join(pieces) == ANSWER
        assert len(pieces) > 3


def tools() -> None:
    for model in models_of(SCRIPTED, "mock"):
        bound = model.bind_tools([weather])
        messages: Any = [HumanMessage(WEATHER)]
        said = bound.invoke(messages)
        (call,) = said.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"city": CITY, "days": 3})
        result = weather.invoke(call)
        assert isinstance(result, ToolMessage)
        answer = bound.invoke([*messages, said, result])
        assert answer.text.strip() == FORECAST


def structured() -> None:
    for method in ("json_schema", "function_calling"):
        for model in real():
            assert model.with_structured_output(Capital, method=method).invoke(ASKED) == Capital(city="Paris")


def errors() -> None:
    refused(openai.NotFoundError, model="nope")
    refused(openai.BadRequestError, temperature=-1)
    refused(openai.AuthenticationError, api_key="wrong")
    refused(ContextOverflowError, messages=[HumanMessage(LONG)])


def refused(kind: Any, messages: Any = ASKED, **changed: Any) -> None:
    for model in real(**changed):
        try:
            model.invoke(messages)
        except kind:
            continue
        raise AssertionError(f"{changed} was taken")


run(
    "langchain-openai",
    {"chat": chat, "stream": streamed, "tools": tools, "structured": structured, "errors": errors},
)
