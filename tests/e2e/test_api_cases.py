"""Reported faults of serving engines, by their ids in the shared bank, on the routes that make tokens.

| id | here |
|---|---|
| HT03 | normal ends of a stream on each route; an engine that is gone for good |
| HT04 | keys of every chunk of chats and completions |
| HT06 | unknown models, and bodies that are none, on each route, streamed or not |
| SO01, SO02, SO04 | what cannot be is refused on each route that takes a structure |
| SO01, SO05, SO08, SO20 | what can be is answered in time |
| GR04 | a stop string inside a token |
| GR05 | blocks and stop_reason, streamed and not |

Elsewhere: HT03, kills with restarts left: test_crashes.py; one that fails, a budget that is spent: test_faults.py.
SO02, SO07, SO08, SO10, SO11, SO13, SO14, SO16, SO19, SO20 for the compiler and the matcher alone: tests/unit/native and
rust_frontend/grammar/tests. SO17 does not arise: no flag switches structured output off.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bench.frontend.processes import Programs
from bench.frontend.processes import running as scripted
from tests.e2e.server import Server
from tests.e2e.test_errors_page import GOOD

END = "<|im_end|>"
HEAD = "<|im_start|>assistant\n"
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n</tool_call>'
ROUTES = tuple(GOOD)
GUIDED = ("chat", "completions", "responses")


def post(url: str, route: str, **fields: Any) -> httpx.Response:
    """POST a good body with these fields."""
    path, good = GOOD[route]
    return httpx.post(f"{url}{path}", json={**good, **fields}, timeout=60)


def events(answer: httpx.Response) -> list[Any]:
    """Return the data of each event, JSON but for [DONE]."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def ends(route: str, all_events: list[Any]) -> list[str]:
    """Return the reasons with which a stream ends, of which there must be one."""
    if route in ("chat", "completions"):
        assert all_events[-1] == "[DONE]" and all_events.count("[DONE]") == 1
        choices = [choice for event in all_events[:-1] for choice in event["choices"]]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
    assert "[DONE]" not in all_events
    if route == "messages":
        assert all_events[-1]["type"] == "message_stop"
        return [event["delta"]["stop_reason"] for event in all_events if event["type"] == "message_delta"]
    last = ("response.completed", "response.incomplete", "response.failed")
    found = [event["type"] for event in all_events if event["type"] in last]
    assert all_events[-1]["type"] == found[-1]
    return found


LENGTH = {"chat": "length", "completions": "length", "messages": "max_tokens", "responses": "response.incomplete"}
STOP = {"chat": "stop", "completions": "stop", "messages": "stop_sequence", "responses": "response.completed"}
CHOICE = {"structured_outputs": {"choice": ["ab"]}}
GRAMMAR: dict[str, dict[str, Any]] = {"chat": CHOICE, "completions": CHOICE, "responses": CHOICE}


@pytest.mark.parametrize("route", ROUTES)
def test_ht03_a_stream_has_one_end(surface: Server, route: str) -> None:
    short = {"max_output_tokens" if route == "responses" else "max_tokens": 6, "stream": True, "temperature": 0}
    assert ends(route, events(post(surface.url, route, **short))) == [LENGTH[route]]
    if route in GRAMMAR:
        reason = "stop" if route != "responses" else "response.completed"
        assert ends(route, events(post(surface.url, route, **short, **GRAMMAR[route]))) == [reason]
    text = said(route, post(surface.url, route, **(short | {"stream": False})).json())
    stop = {"stop_sequences" if route == "messages" else "stop": [text[1:3]]}
    assert ends(route, events(post(surface.url, route, **short, **stop))) == [STOP[route]]


def said(route: str, answer: Any) -> str:
    """Return the text of an answer."""
    match route:
        case "chat":
            text = answer["choices"][0]["message"]["content"]
        case "completions":
            text = answer["choices"][0]["text"]
        case "messages":
            text = answer["content"][0]["text"]
        case _:
            text = answer["output"][-1]["content"][0]["text"]
    assert len(text) >= 3, text
    return str(text)


def test_ht03_an_engine_that_is_gone_for_good_is_one_error(tiny: Path, programs: Programs) -> None:
    """The mock leaves after half a second, and nobody starts it again: the replay time-out is spent."""
    flags = ("--output", "ids:66,67,68,69,70,71,72,73", "--step-time", "20", "--fault", "die@30", "--vocab-size", "288")
    settings = {"replay_timeout_s": 1.0}
    with scripted(programs, tiny, *flags, settings=settings) as stack, ThreadPoolExecutor(len(ROUTES)) as pool:
        url = f"http://127.0.0.1:{stack.port}"

        def stream(route: str) -> httpx.Response:
            return post(url, route, stream=True, **{"max_output_tokens" if route == "responses" else "max_tokens": 50})

        began = time.monotonic()
        for route, answer in zip(ROUTES, pool.map(stream, ROUTES), strict=True):
            assert len(failures(route, events(answer))) == 1, answer.text
        assert time.monotonic() - began < 6
        for late in pool.map(lambda route: post(url, route), ROUTES):
            # It does not hang; `octavo serve` would have left.
            assert (late.status_code, late.headers["retry-after"]) == (503, "30"), late.text


def failures(route: str, all_events: list[Any]) -> list[Any]:
    """Return the errors of a stream that fails; nothing may look like an end that is none."""
    if route in ("chat", "completions"):
        assert all_events[-1] == "[DONE]" and "error" in all_events[-2]
        chunks = [event for event in all_events[:-1] if "choices" in event]
        assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
        return [event["error"] for event in all_events[:-1] if "error" in event]
    if route == "messages":
        assert all_events[-1]["type"] == "error"
        assert "message_delta" not in {event["type"] for event in all_events}
        return [event["error"] for event in all_events if event["type"] == "error"]
    assert all_events[-1]["type"] == "response.failed"
    return [event["response"]["error"] for event in all_events if event["type"] == "response.failed"]


@pytest.mark.parametrize("route", ["chat", "completions"])
@pytest.mark.parametrize("n", [1, 2])
def test_ht04_every_chunk_has_its_keys(surface: Server, route: str, n: int) -> None:
    chunks = events(post(surface.url, route, stream=True, n=n, max_tokens=3))[:-1]
    for name in ("id", "created", "model", "object"):
        assert len({chunk[name] for chunk in chunks}) == 1
    for index in range(n):
        choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert all("finish_reason" in choice for choice in choices)
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1]["finish_reason"] in ("stop", "length")
        if route == "chat":
            assert choices[0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", ROUTES)
def test_ht06_the_status_is_that_of_what_is_wrong(surface: Server, route: str, stream: bool) -> None:
    needed = {"chat": "messages", "messages": "messages", "completions": "prompt", "responses": "input"}[route]
    assert post(surface.url, route, model="nope", stream=stream).status_code == 404
    assert post(surface.url, route, model="nope", stream=stream, **{needed: []}).status_code == 404
    for fields in ({needed: []}, {needed: None}, {needed: 5}):
        answer = post(surface.url, route, model="tiny", stream=stream, **fields)
        assert answer.status_code == 400 and needed in answer.json()["error"]["message"]
    path, _ = GOOD[route]
    for raw in ("{bad json", "", "[]", '{"model":"tiny"}'):
        headers = {"content-type": "application/json"}
        assert httpx.post(f"{surface.url}{path}", content=raw, headers=headers, timeout=10).status_code == 400
    assert surface.get(path).status_code == 405


def schema_field(route: str, schema: Any) -> dict[str, Any]:
    """Return the field by which a route takes a schema."""
    if route == "responses":
        return {"text": {"format": {"type": "json_schema", "name": "s", "strict": True, "schema": schema}}}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}}


BAD_SCHEMAS: dict[str, Any] = {
    "SO01 type": {"type": "object", "properties": {"a": {"type": "nonsense"}}},
    "SO01 items": {"type": "array", "items": [{"type": "string"}]},
    "SO01 ref": {"$ref": "#/nowhere"},
    "SO01 enum": {"enum": []},
    "SO01 pattern": {"type": "string", "pattern": "("},
    "SO01 false": False,
    "SO01 anyOf": {"anyOf": []},
    "SO01 bounds": {"type": "integer", "minimum": 3, "maximum": 1},
}
BAD_OUTPUTS: dict[str, Any] = {
    "SO02 class": {"regex": "[a-z"},
    "SO02 behind": {"regex": "(?<=x)y"},
    "SO02 count": {"regex": "\\d{5"},
    "SO02 name": {"regex": "\\p{Nope}"},
    "SO02 empty": {"regex": ""},
    "SO04 object": {"json_object": False},
    "SO04 json": {"json": ""},
    "SO04 choice": {"choice": []},
    "SO04 grammar": {"grammar": ""},
    "SO04 none": {},
    "SO04 two": {"json": "{}", "regex": "a"},
    "SO08 grammar": {"grammar": 'root ::= "a"{2000000000,2147483647}'},
}


@pytest.mark.parametrize("route", GUIDED)
def test_so01_so02_so04_what_cannot_be_is_refused_and_the_engine_never_hears_of_it(surface: Server, route: str) -> None:
    for case, schema in BAD_SCHEMAS.items():
        answer = post(surface.url, route, **schema_field(route, schema))
        assert answer.status_code == 400, (case, answer.text)
        assert answer.json()["error"]["param"].endswith(".schema"), case
    for case, outputs in BAD_OUTPUTS.items():
        answer = post(surface.url, route, structured_outputs=outputs)
        assert answer.status_code == 400, (case, answer.text)
        assert answer.json()["error"]["param"].startswith("structured_outputs"), case
    formats = ({"type": "json_schema"}, {"type": "weird"})
    for format_ in formats if route != "responses" else ():
        assert post(surface.url, route, response_format=format_).status_code == 400
    assert surface.get("/health").status_code == 200
    assert post(surface.url, route).status_code == 200


@pytest.mark.parametrize("route", GUIDED)
def test_so01_so05_so08_so20_what_can_be_is_answered_in_time(surface: Server, route: str) -> None:
    number = {"type": "integer", "minimum": 0, "maximum": 20_000_000_000}
    closed = {"type": "object", "properties": {"v": number}, "required": ["v"], "additionalProperties": False}
    limit = {"max_output_tokens" if route == "responses" else "max_tokens": 60, "temperature": 1.0, "seed": 5}
    value = json.loads(said(route, post(surface.url, route, **limit, **schema_field(route, closed)).json()))
    assert 0 <= value["v"] <= 20_000_000_000
    assert post(surface.url, route, **limit, **schema_field(route, True)).status_code == 200
    huge = {"type": "array", "minItems": 100_000_000}, {"type": "string", "maxLength": 2_147_483_647}
    for schema in huge:
        began = time.monotonic()
        assert post(surface.url, route, **schema_field(route, schema)).status_code in (200, 400)
        assert time.monotonic() - began < 4  # 2 s of the case, and the tokens
    compact = {"structured_outputs": {"json_object": True, "disable_any_whitespace": True}}
    text = said(route, post(surface.url, route, **limit, **compact).json())
    assert text.startswith("{") and not text.startswith(("{ ", "{\n"))


def folder_of_tokens(folder: Path, texts: list[str]) -> list[int]:
    """Save a tokenizer of bytes that has these texts as tokens too; return their ids, the end token last."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.add_tokens(texts)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)
    fast.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}" + HEAD
    fast.save_pretrained(folder)
    return [*(tokenizer.token_to_id(text) for text in texts), tokenizer.token_to_id(END)]


@pytest.mark.parametrize("stream", [False, True])
def test_gr04_a_stop_string_inside_a_token_ends_the_request(tmp_path: Path, programs: Programs, stream: bool) -> None:
    ids = folder_of_tokens(tmp_path, ["One", " two", ". Three", " four"])
    flags = ("--output", "ids:" + ",".join(map(str, ids)), "--step-time", "30")
    with scripted(programs, tmp_path, *flags) as stack:
        url = f"http://127.0.0.1:{stack.port}"
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = post(url, "chat", stop=["."], max_tokens=50, stream=stream, **options)
        if stream:
            chunks = events(answer)[:-1]
            choices = [choice for chunk in chunks for choice in chunk["choices"]]
            text = "".join(choice["delta"].get("content") or "" for choice in choices)
            last, usage = choices[-1], chunks[-1]["usage"]
        else:
            last, usage = answer.json()["choices"][0], answer.json()["usage"]
            text = last["message"]["content"]
        assert (text, last["finish_reason"], last["stop_reason"]) == ("One two", "stop", ".")
        assert usage["completion_tokens"] == 3


TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
TEXT = {"type": "text", "text": "Let me look."}
USE = {"type": "tool_use", "name": "get_weather", "input": {"city": "Lima"}}


@pytest.mark.parametrize(
    ("model_text", "blocks", "reason"),
    [
        (f"Let me look.\n{CALL}", [TEXT, USE], "tool_use"),
        (CALL, [USE], "tool_use"),
        ("Just text.", [{"type": "text", "text": "Just text."}], "end_turn"),
    ],
    ids=["text and call", "call", "text"],
)
def test_gr05_blocks_come_in_order_and_the_reason_is_that_of_the_last(
    tmp_path: Path, programs: Programs, model_text: str, blocks: list[Any], reason: str
) -> None:
    folder_of_tokens(tmp_path, ["<tool_call>", "</tool_call>"])
    fast = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ids = [*fast.encode(model_text, add_special_tokens=False), fast.eos_token_id]
    settings = {"tool_call_parser": "hermes", "enable_auto_tool_choice": True}
    flags = ("--output", "ids:" + ",".join(map(str, ids)), "--step-time", "0")
    with scripted(programs, tmp_path, *flags, settings=settings) as stack:
        url = f"http://127.0.0.1:{stack.port}"
        whole = post(url, "messages", tools=[TOOL], max_tokens=200).json()
        streamed = list(gathered(events(post(url, "messages", tools=[TOOL], max_tokens=200, stream=True)), reason))
    for answer in (whole["content"], streamed):
        assert all(block.pop("id") for block in answer if block["type"] == "tool_use")
        assert answer == blocks
    assert whole["stop_reason"] == reason


def gathered(all_events: list[Any], reason: str) -> Iterator[dict[str, Any]]:
    """Put the blocks of a stream together; checks the order of its events."""
    kinds = [event["type"] for event in all_events if event["type"] != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    start, delta = all_events[0]["message"], [event for event in all_events if event["type"] == "message_delta"]
    assert start["stop_reason"] is None and start["usage"]["input_tokens"] > 0
    assert [one["delta"]["stop_reason"] for one in delta] == [reason] and delta[0]["usage"]["output_tokens"] > 0
    inner = [event for event in all_events if event["type"].startswith("content_block")]
    indexes = [event["index"] for event in inner]
    assert indexes == sorted(indexes)
    for index in range(indexes[-1] + 1):
        first, *deltas, last = [event for event in inner if event["index"] == index]
        assert (first["type"], last["type"]) == ("content_block_start", "content_block_stop")
        block = dict(first["content_block"])
        if block["type"] == "tool_use":
            assert block["input"] == {}
            block["input"] = json.loads("".join(event["delta"]["partial_json"] for event in deltas))
        else:
            assert block["text"] == ""
            block["text"] = "".join(event["delta"]["text"] for event in deltas)
        yield block
