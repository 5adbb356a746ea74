"""Structured output over HTTP, with a real engine: a random model can only write what it is allowed to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server, running

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["kind", "count"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
    {
        "type": "function",
        "function": {"name": "get_time", "parameters": {"properties": {}, "additionalProperties": False}},
    },
]
BASE: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 120, "seed": 3}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def guided(tiny: Path) -> Iterator[Server]:
    flags = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
    parsers = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    with running(tiny, *flags, *parsers) as server:
        yield server


def post(server: Server, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": value}}}


def test_answers_are_instances_streamed_and_not(guided: Server) -> None:
    settings = BASE | schema(SCHEMA) | {"temperature": 1.0}
    whole = guided.client().chat.completions.create(**settings).choices[0]
    chunks = list(guided.client().chat.completions.create(**settings, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole.finish_reason == "stop" and text == whole.message.content
    value = json.loads(text)
    assert value["kind"] in ("a", "b") and 0 <= value["count"] <= 99 and len(value) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_tc07_calls_are_forced_and_the_finish_is_one(guided: Server, choice: Any, stream: bool) -> None:
    settings = BASE | {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "temperature": 1.0}
    if stream:
        name, arguments, finish = "", "", None
        for chunk in guided.client().chat.completions.create(**settings, stream=True):
            for call in chunk.choices[0].delta.tool_calls or []:
                name += (call.function and call.function.name) or ""
                arguments += (call.function and call.function.arguments) or ""
            finish = chunk.choices[0].finish_reason or finish
    else:
        answer = guided.client().chat.completions.create(**settings).choices[0]
        calls = answer.message.tool_calls or []
        assert len(calls) == 1
        name, arguments, finish = calls[0].function.name, calls[0].function.arguments, answer.finish_reason
    assert finish == "tool_calls"
    assert name in ("get_weather", "get_time") if choice == "required" else name == "get_weather"
    assert isinstance(json.loads(arguments), dict)


def test_so01_bad_schemas_are_refused_while_others_go_on(guided: Server) -> None:
    bad: list[Any] = [{"type": "nonsense"}, {"$ref": "#/nowhere"}, {"enum": []}, {"pattern": "("}, False, {"anyOf": []}]
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(post, guided, BASE | {"seed": seed, "ignore_eos": True}) for seed in range(4)]
        for value in bad:
            answer = post(guided, BASE | schema(value))
            assert answer.status_code == 400, value
            assert answer.json()["error"]["param"] == "response_format.json_schema.schema"
        assert [other.result().status_code for other in others] == [200] * 4
    assert guided.get("/health").status_code == 200
    assert post(guided, BASE | schema(True)).status_code == 200


def test_response_formats_and_tools_do_not_mix(guided: Server) -> None:
    answer = post(guided, BASE | schema({}) | {"tools": TOOLS})
    assert answer.status_code == 400 and "tools" in answer.json()["error"]["message"]
    assert post(guided, BASE | schema({}) | {"tools": TOOLS, "tool_choice": "none"}).status_code == 200


def test_stop_strings_and_limits_work_inside(guided: Server) -> None:
    settings = BASE | {"structured_outputs": {"regex": "[ab]{20,30}c"}, "temperature": 1.0}
    cut = post(guided, settings | {"max_tokens": 5}).json()["choices"][0]
    assert cut["finish_reason"] == "length" and re.fullmatch("[ab]{5}", cut["message"]["content"])
    whole = post(guided, settings).json()["choices"][0]["message"]["content"]
    assert re.fullmatch("[ab]{20,30}c", whole)
    stop = whole[10:13]
    stopped = post(guided, settings | {"stop": [stop]}).json()["choices"][0]
    assert stopped["message"]["content"] == whole[: whole.index(stop)] and stopped["stop_reason"] == stop


def test_a_grammar_goes_on_after_a_crash_where_it_stood(guided: Server) -> None:
    settings = BASE | {"temperature": 1.0, "max_tokens": 300}
    regex = {"structured_outputs": {"regex": "([ab]{3} ){60}end"}}
    whole = post(guided, settings | regex).json()["choices"][0]["message"]["content"]
    text, killed = "", []
    for chunk in guided.client().chat.completions.create(**settings, extra_body=regex, stream=True):
        text += chunk.choices[0].delta.content or ""
        for at, part in ((20, "worker-0"), (120, "engine")):
            if len(text) > at and part not in killed:
                guided.kill(part)
                killed.append(part)
    assert text == whole and re.fullmatch("([ab]{3} ){60}end", text) and len(killed) == 2
