"""The parser of reasoning and tool calls as Python sees it."""

from __future__ import annotations

import inspect
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from octavo_native import Event, Parser, Renderer, parse, parser_names

from tests.tiny import make_tokenizer

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
TEXT = "<think>\nhm – 字\n</think>\n\nLet me see.\n" + CALL
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
]


def fold(events: list[Event]) -> dict[str, Any]:
    def text(kind: str) -> str:
        return "".join(event.text or "" for event in events if event.kind == kind)

    names = [event.name for event in events if event.kind == "call"]
    return {"reasoning": text("reasoning"), "content": text("content"), "names": names, "arguments": text("arguments")}


def test_a_text_gives_content_reasoning_and_calls() -> None:
    message = parse(TEXT, "hermes", "qwen3", TOOLS)
    assert message.reasoning.strip() == "hm – 字"
    assert message.content.strip() == "Let me see."
    (call,) = message.calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Köln"})
    assert call.id.startswith("call_")
    assert call.id != parse(TEXT, "hermes", "qwen3", TOOLS).calls[0].id
    assert "weather" in repr(message)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_however_the_text_is_cut_the_events_joined_are_the_same(size: int) -> None:
    parser = Parser("hermes", "qwen3", TOOLS)
    events = [event for at in range(0, len(TEXT), size) for event in parser.feed(TEXT[at : at + size])]
    events += parser.finish()
    message = parse(TEXT, "hermes", "qwen3", TOOLS)
    assert fold(events) == {
        "reasoning": message.reasoning,
        "content": message.content,
        "names": ["weather"],
        "arguments": message.calls[0].arguments,
    }
    assert (events[-1].kind, events[-1].reason) == ("end", "stop")
    assert parser.finish() == []


def test_an_id_between_name_and_arguments_is_no_argument() -> None:
    text = '[TOOL_CALLS]f[CALL_ID]abc123456[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]abc123457[ARGS]{}'
    assert [(call.name, call.arguments) for call in parse(text, "mistral").calls] == [("f", '{"a": 1}'), ("g", "{}")]


def test_choices() -> None:
    call = CALL
    assert parse(call, "hermes", tool_choice="none").content == call
    assert parse(call, "hermes", tools=[]).content == call
    named = {"type": "function", "function": {"name": "weather"}}
    assert len(parse(call, "hermes", tool_choice=named).calls) == 1
    assert len(parse(call + call, "hermes").calls) == 2
    assert len(parse(call + call, "hermes", parallel=False).calls) == 1
    assert parse("a</think>b", None, "qwen3", start="reasoning").reasoning == "a"
    assert parse("a</think>b", None, "qwen3", start="<|im_start|>assistant\n<think>\n").reasoning == "a"
    assert parse("a", None, "qwen3", start="<|im_start|>assistant\n<think>\n\n</think>\n\n").content == "a"
    assert parse(call[:-25], "hermes", finish="length").calls[0].arguments == '{"cit'


def test_ids_are_read_by_the_vocabulary_of_a_renderer(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    tokenizer.save_pretrained(tmp_path)
    renderer = Renderer(tmp_path)
    ids = renderer.encode(TEXT, False)
    assert len(ids) < len(TEXT.encode())
    parser = Parser("auto", "auto", TOOLS, renderer=renderer)
    events = [event for token in ids for event in parser.feed([token])] + parser.finish()
    message = parse(TEXT, "hermes", "qwen3", TOOLS)
    assert fold(events)["reasoning"] == message.reasoning
    assert fold(events)["arguments"] == message.calls[0].arguments
    tokens = sum(event.tokens or 0 for event in events)
    assert len("hm – 字".encode()) <= tokens <= len("\nhm – 字\n".encode())
    with pytest.raises(ValueError, match="renderer"):
        Parser("hermes").feed([1])
    with pytest.raises(TypeError, match="token ids"):
        Parser("hermes").feed(1.5)  # type: ignore[arg-type]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean hermes"):
        Parser("hermess")
    with pytest.raises(ValueError, match="no reasoning parser is called"):
        Parser(None, "qwen33333")
    with pytest.raises(ValueError, match="auto needs"):
        Parser("auto")
    with pytest.raises(ValueError, match="tool_choice"):
        Parser("hermes", tool_choice="any")
    with pytest.raises(ValueError, match='finish is "end"'):
        parse("", finish="end")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"none\.toml"):
        Parser("mine", format_files=[tmp_path / "none.toml"])
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('name = "mine"\ncolour = 1\n')
    with pytest.raises(ValueError, match=r"wrong\.toml:2.*colour"):
        Parser("mine", format_files=[wrong])


def test_signatures_are_those_of_the_documentation() -> None:
    shared = "tool=None, reasoning=None, tools=None, start=None, tool_choice='auto', *"
    shared += ", parallel=True, format_files=(), renderer=None"
    assert str(inspect.signature(Parser)) == f"({shared})"
    assert str(inspect.signature(parse)) == f"(text, {shared}, finish='stop')"


def test_every_name_makes_a_parser() -> None:
    tools, reasoning = parser_names()
    assert {"hermes", "qwen3_coder", "mistral", "openai"} <= set(tools)
    assert {"qwen3", "deepseek_r1", "granite"} <= set(reasoning)
    for name in tools:
        assert Parser(name).finish()[-1].kind == "end"
    for name in reasoning:
        assert Parser(None, name).finish()[-1].kind == "end"


def test_other_threads_run_while_a_long_text_is_parsed() -> None:
    """The interpreter is given away: a thread counts on while one text of megabytes is read."""
    text = "<" * 2_000_000
    counted, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        parse(text, "qwen3_coder", "qwen3")
        # Without it, the count could move only before the call began and after it ended.
        assert counted[0] - before > 1000
    finally:
        done.set()
        thread.join()
