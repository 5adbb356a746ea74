"""pydantic-ai: agents by /v1/chat/completions and by /v1/responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]


def models_of(url: str, name: str, key: str = KEY) -> Iterator[Any]:
    """Yield a model for each API."""
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        yield kind(name, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=key))


def agents(output: Any = str, name: str = "smollm2", key: str = KEY, **settings: Any) -> Iterator[Agent[None, Any]]:
    for model in models_of(REAL, name, key):
        given: Any = {"temperature": 0, "max_tokens": 60} | settings
        yield Agent(model, output_type=output, instructions=SYSTEM, model_settings=given)


def chat() -> None:
    for agent in agents():
        result = agent.run_sync(QUESTION)
        assert result.output == ANSWER
        assert result.usage.output_tokens > 3


def streamed() -> None:
    async def pieces(agent: Agent[None, Any]) -> list[str]:
        async with agent.run_stream(QUESTION) as stream:
            return [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]

    for agent in agents():
        got = asyncio.run(pieces(agent))
        assert "".join(got) == ANSWER
        assert len(got) > 3


def tools() -> None:
    for model in models_of(SCRIPTED, "mock"):
        seen: list[tuple[str, int]] = []
        assert Agent(model, tools=[teller(seen)]).run_sync(WEATHER).output.strip() == FORECAST
        assert seen == [(CITY, 3)]


def teller(seen: list[tuple[str, int]]) -> Any:
    """Make a tool that keeps what it was called with."""

    def weather(city: str, days: int) -> str:
        """Tell the weather of a city."""
        seen.append((city, days))
        return "22 degrees"

    return weather


def structured() -> None:
    for form in (NativeOutput(Capital), ToolOutput(Capital)):
        for agent in agents(form):
            assert agent.run_sync(QUESTION).output == Capital(city="Paris")


def errors() -> None:
    refused(404, QUESTION, name="nope")
    refused(400, QUESTION, temperature=-1)
    refused(400, LONG)
    refused(401, QUESTION, key="wrong")


def refused(status: int, question: str, **changed: Any) -> None:
    for agent in agents(**changed):
        try:
            agent.run_sync(question)
        except ModelHTTPError as error:
            assert error.status_code == status, error
        else:
            raise AssertionError(f"{changed} was taken")


run(
    "pydantic-ai-slim",
    {"chat": chat, "stream": streamed, "tools": tools, "structured": structured, "errors": errors},
)
