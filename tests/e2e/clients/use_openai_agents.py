"""openai-agents: a run of an agent by /v1/responses (its default) and by /v1/chat/completions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from steps import ANSWER, CITY, FORECAST, KEY, LONG, QUESTION, REAL, SCRIPTED, SYSTEM, WEATHER, run

set_tracing_disabled(True)
seen: list[tuple[str, int]] = []


class Capital(BaseModel):
    city: Literal["Paris", "Berlin"]


@function_tool
def weather(city: str, days: int) -> str:
    """Tell the weather of a city."""
    seen.append((city, days))
    return "22 degrees"


def models_of(url: str, name: str, key: str = KEY) -> Iterator[Any]:
    """Yield a model for each API."""
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)
        yield kind(model=name, openai_client=client)


def agents(name: str = "smollm2", key: str = KEY, temperature: float = 0, **more: Any) -> Iterator[Agent[None]]:
    settings = ModelSettings(temperature=temperature, max_tokens=60)
    for model in models_of(REAL, name, key):
        yield Agent(name="a", instructions=SYSTEM, model=model, model_settings=settings, **more)


def chat() -> None:
    for agent in agents():
        assert Runner.run_sync(agent, QUESTION).final_output == ANSWER


def streamed() -> None:
    async def pieces(agent: Agent[None]) -> list[str]:
        result = Runner.run_streamed(agent, QUESTION)
        events = [event async for event in result.stream_events()]
        assert result.final_output == ANSWER
        raw = [event.data for event in events if event.type == "raw_response_event"]
        return [data.delta for data in raw if data.type == "response.output_text.delta"]

    for agent in agents():
        got = asyncio.run(pieces(agent))
        assert "".join(got) == ANSWER
        assert len(got) > 3


def tools() -> None:
    for model in models_of(SCRIPTED, "mock"):
        seen.clear()
        result = Runner.run_sync(Agent(name="a", model=model, tools=[weather]), WEATHER)
        assert result.final_output.strip() == FORECAST
        assert seen == [(CITY, 3)]


def structured() -> None:
    for agent in agents(output_type=Capital):
        assert Runner.run_sync(agent, QUESTION).final_output == Capital(city="Paris")


def errors() -> None:
    refused(openai.NotFoundError, QUESTION, name="nope")
    refused(openai.BadRequestError, QUESTION, temperature=-1)
    refused(openai.BadRequestError, LONG)
    refused(openai.AuthenticationError, QUESTION, key="wrong")


def refused(kind: Any, question: str, **changed: Any) -> None:
    for agent in agents(**changed):
        try:
            Runner.run_sync(agent, question)
        except kind:
            continue
        raise AssertionError(f"{changed} was taken")


run(
    "openai-agents",
    {"chat": chat, "stream": streamed, "tools": tools, "structured": structured, "errors": errors},
)
