"""Response templates read as formats: what Transformers reads with one, the parser reads too, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from octavo_native import Parser, parse
from transformers.utils.chat_parsing import parse_response

NAME = "response_template"
CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
TEXT = {"content": "text"}


def template(anchor: str | list[str], **fields: Any) -> dict[str, Any]:
    return {"defaults": {"role": "assistant"}, "start_anchor": anchor, "fields": fields}


# Each with texts that a model of that kind writes, and the end of its prompt.
TEMPLATES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "objects in tags": (
        template(
            "<|im_start|>assistant\n",
            thinking={"open": "<think>", "close": "</think>"},
            tool_calls={
                "open": "<tool_call>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            content={"close": "<|im_end|>"},
        ),
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        [
            "Hello.<|im_end|>",
            "<think>\nHm < 3.\n</think>\n\nWell.",
            '<think>a</think>\n<tool_call>\n{"name": "f", "arguments": {"a": "</x> {\\"", "b": [1, {}]}}\n</tool_call>',
            '<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'
            '<tool_call>{"name": "g", "arguments": {"é": null}}</tool_call>',
        ],
    ),
    "thoughts begun": (
        template("A:", thinking={"open": "<think>", "close": "</think>"}, content={}),
        "U: hi\nA:<think>\n",
        ["I see.\n</think>\n\nYes.", "never closed"],
    ),
    "thoughts first": (
        template(
            "A:",
            thinking={"open_pattern": r"(?:^|<think>\s*)", "close": "</think>"},
            content={"open": "<response>\n", "close_pattern": r"\n?</response>"},
        ),
        "A:",
        ["Hm.\n</think>\n\n<response>\nYes.\n</response>\n"],
    ),
    "tags": (
        template(
            "A:",
            tool_calls={
                "open_pattern": r"<tool_call>\s*<function=(?P<name>\w+)>",
                "close": "</tool_call>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>",
                    "value_parser": {"name": "json", "args": {"allow_non_json": True}},
                },
                "transform": CALL,
            },
            content={},
        ),
        "A:",
        [
            "Look.\n<tool_call>\n<function=f>\n<parameter=a>\nx y\n</parameter>\n<parameter=b>\n[1, 2]\n</parameter>\n"
            "</function>\n</tool_call>",
            "<tool_call><function=g></function></tool_call>",
        ],
    ),
    "channels": (
        template(
            "<|start|>assistant",
            thinking={"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
            content={"open": "<|channel|>final<|message|>", "close": "<|end|>"},
            tool_calls={
                "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+).*?<\|message\|>",
                "close": "<|call|>",
                "repeats": True,
                "content": "json",
                "transform": CALL,
            },
        ),
        "<|start|>assistant",
        [
            "<|channel|>analysis<|message|>Hm.<|end|><|channel|>final<|message|>Yes.",
            "<|channel|>analysis<|message|>Hm.<|end|>"
            '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
        ],
    ),
    "a list of actions": (
        template(
            "<|CHATBOT|>",
            thinking={"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
            content={"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
            tool_calls={
                "open": "<|START_ACTION|>",
                "close": "<|END_ACTION|>",
                "content": "json",
                "transform_each": True,
                "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            },
        ),
        "<|CHATBOT|>",
        [
            "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
            '<|START_ACTION|>[\n  {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "b"}},\n'
            '  {"tool_call_id": "1", "tool_name": "g", "parameters": {}}\n]<|END_ACTION|>',
        ],
    ),
    "quote tokens": (
        template(
            ["<|turn>model\n", "<tool_response|>"],
            thinking={"open": "<|channel>thought\n", "close": "<channel|>"},
            tool_calls={
                "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
                "close": "<tool_call|>",
                "repeats": True,
                "content": "json",
                "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
                "transform": CALL,
            },
            content={"close": ["<turn|>", "<eos>"]},
        ),
        "<|turn>model\n",
        [
            "<|channel>thought\nHm.<channel|>Yes.<turn|>",
            '<|tool_call>call:f{a:<|"|>x, "y"<|"|>,b:{c:[1,2.5,true]}}<tool_call|>',
        ],
    ),
    "expressions": (
        template(
            "A:",
            tool_calls={
                "open": "<|tool_call_start|>",
                "close": "<|tool_call_end|>",
                "content": "python-call-list",
                "transform_each": True,
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
            },
            content={"close": "<|im_end|>"},
        ),
        "A:",
        ['<|tool_call_start|>[f(a="x", b=[1, None]), g()]<|tool_call_end|>So.<|im_end|>'],
    ),
}
PAIRS = [(name, index) for name, (_, _, texts) in TEMPLATES.items() for index in range(len(texts))]


def write(folder: Path, content: Any) -> list[str]:
    path = folder / "template.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return [str(path)]


@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_it_reads_what_transformers_reads(name: str, index: int, tmp_path: Path) -> None:
    spec, prompt, texts = TEMPLATES[name]
    text, files = texts[index], write(tmp_path, {"response_template": spec})
    wanted = parse_response(text, spec, prefix=prompt)
    tool = NAME if "tool_calls" in spec["fields"] else None
    reasoning = NAME if "thinking" in spec["fields"] else None
    # A prompt that says nothing of thoughts opens none, whatever the template's `^` says: the caller does.
    start = "reasoning" if name == "thoughts first" else prompt
    message = parse(text, tool, reasoning, start=start, format_files=files)
    assert (message.reasoning or "") == wanted.get("thinking", "")
    assert (message.content or "").strip() == wanted.get("content", "")
    calls = [call["function"] for call in wanted.get("tool_calls", [])]
    assert [{"name": call.name, "arguments": json.loads(call.arguments)} for call in message.calls] == calls

    parser = Parser(tool, reasoning, start=start, format_files=files)
    events = [event for letter in text for event in parser.feed(letter)] + parser.finish()
    said = "".join(event.text for event in events if event.kind == "content")
    assert said == (message.content or "")
    names = [event.name for event in events if event.kind == "call"]
    assert names == [call.name for call in message.calls]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start_anchor": ""}, "response_template.start_anchor: must be a text"),
        ({"fields": {"content": {"shape": 1}}}, "fields.content.shape: is no key"),
        ({"fields": {"citations": {"open": "<c>"}}}, "fields.citations: is none of thinking, content and tool_calls"),
        ({"fields": {"thinking": {"open": "<t>"}}}, "fields.thinking: thoughts need a `close`"),
        (
            {"fields": {"tool_calls": {"open": "<t>", "content": "kv-lines"}}},
            'fields.tool_calls.content: "kv-lines" is not supported',
        ),
        (
            {
                "fields": {
                    "tool_calls": {"open_pattern": r"<t>(?P<name>\w+)(?=x)", "content": "json", "transform": CALL}
                }
            },
            "fields.tool_calls.open_pattern: is no regular expression",
        ),
    ],
)
def test_what_no_format_can_say_is_refused_by_name(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    spec = template("A:", content={}) | change
    with pytest.raises(ValueError, match=r"template\.json") as caught:
        parse("x", NAME, format_files=write(tmp_path, spec))
    assert said in str(caught.value)
