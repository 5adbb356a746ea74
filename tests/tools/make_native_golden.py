"""Write the golden rows of the native formats: what openai-harmony and mistral-common make of conversations.

Run in an environment of its own (`pip install openai-harmony==0.0.8 mistral-common==1.13.1`), with
`TIKTOKEN_ENCODINGS_BASE` naming a folder that holds o200k_base.tiktoken: `python tests/tools/make_native_golden.py`.
Writes rust_frontend/template/tests/golden/{harmony,mistral}.jsonl, one row a line: case, messages, tools, kwargs and
`expected`; for Mistral with the version, special tokens as lists of one and the texts between them, or null where the
reference refuses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[2] / "rust_frontend/template/tests/golden"

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather\nin a city",
        "parameters": {
            "type": "object",
            "description": "Where",
            "properties": {
                "city": {"type": "string", "description": 'Its name, as "Zürich"'},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": "integer", "default": 3, "nullable": True},
                "at": {
                    "oneOf": [{"type": "string", "description": "a time"}, {"type": "integer", "default": 0}],
                    "description": "when",
                    "default": "now",
                },
                "like": {"type": "string", "title": "Like", "examples": ["sun", "rain"]},
                "area": {
                    "type": "object",
                    "properties": {"names": {"type": "array", "items": {"type": "string"}}, "any": {"type": "array"}},
                    "required": ["names"],
                },
                "odd": {"type": ["string", "null"], "description": "odd"},
                "free": {"anyOf": [{"type": "string"}]},
                "many": {
                    "type": "array",
                    "items": {"oneOf": [{"type": "string"}, {"type": "boolean", "default": True}]},
                },
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}},
}


def call(name: str, arguments: Any, number: int) -> dict[str, Any]:
    """Return a tool call; arguments as text."""
    return {
        "id": f"abcdefgh{number}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **more}


def result(content: str, number: int, name: str) -> dict[str, Any]:
    """Return a tool's result."""
    return said("tool", content, tool_call_id=f"abcdefgh{number}", name=name)


ASKED = [said("user", "Weather in Zürich & Oslo?")]
CALLED = [
    *ASKED,
    said("assistant", "", tool_calls=[call("weather", {"city": "Zürich", "days": 2}, 1)]),
    result('{"t": 21.5}', 1, "weather"),
]
TWO = [
    *ASKED,
    said("assistant", "", tool_calls=[call("weather", {"city": "Zürich"}, 1), call("clock", {}, 2)]),
    result("12:00", 2, "clock"),
    result("21.5", 1, "weather"),
]
NOON = [said("assistant", "", reasoning="hm", tool_calls=[call("clock", {}, 1)]), result("12", 1, "clock")]
LATER = [
    said("assistant", "Noon.", reasoning="so"),
    said("user", "And?"),
    said("assistant", "", reasoning="again", tool_calls=[call("clock", {}, 2)]),
    result("13", 2, "clock"),
]
PREAMBLE = [said("assistant", "Let me see.", tool_calls=[call("clock", {}, 1)]), result("12", 1, "clock")]
TEXTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
#: Case, messages, tools, kwargs.
Case = tuple[str, list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]
CASES: list[Case] = [
    ("user", [said("user", "Hi <|end|> [INST]")], [], {}),
    ("system", [said("system", "Be brief. "), said("user", "Hi")], [], {}),
    ("turns", [said("user", "Hi"), said("assistant", "Hello  "), said("user", " again\n")], [], {}),
    ("two_users", [said("user", "a"), said("user", "b")], [], {}),
    ("late_system", [said("user", "a"), said("assistant", "b"), said("system", "c"), said("user", "d")], [], {}),
    ("two_systems", [said("system", "a"), said("system", "b"), said("user", "c")], [], {}),
    ("tools", ASKED, [WEATHER, CLOCK], {}),
    ("system_tools", [said("system", "Use tools."), *ASKED], [WEATHER], {}),
    ("called", CALLED, [WEATHER], {}),
    ("called_done", [*CALLED, said("assistant", "21.5"), said("user", "And now?")], [WEATHER], {}),
    ("two_calls", TWO, [WEATHER, CLOCK], {}),
    ("two_calls_done", [*TWO, said("assistant", "Warm."), said("user", "Thanks")], [WEATHER, CLOCK], {}),
    ("preamble", [*ASKED, *PREAMBLE], [CLOCK], {}),
    ("parts", [said("user", TEXTS)], [], {}),
    ("no_tools_left", CALLED, [], {}),
]
HARMONY_ONLY: list[Case] = [
    ("developer", [said("developer", "Be brief."), said("user", "Hi")], [], {}),
    ("high", [said("user", "Hi")], [], {"reasoning_effort": "high"}),
    ("thought", [said("user", "a"), said("assistant", "b", reasoning="hm"), said("user", "c")], [], {}),
    ("thought_call", [*ASKED, *NOON], [CLOCK], {}),
    ("thought_call_done", [*ASKED, *NOON, *LATER], [CLOCK], {}),
]


def text_of(content: Any, glue: str) -> str:
    """Return content as one text."""
    return content if isinstance(content, str) else glue.join(part["text"] for part in content or [])


def harmony(messages: list[dict[str, Any]], tools: list[dict[str, Any]], kwargs: dict[str, Any]) -> str:
    """Return the prompt that openai-harmony writes."""
    import openai_harmony as oh

    encoding = oh.load_harmony_encoding(oh.HarmonyEncodingName.HARMONY_GPT_OSS)
    effort = {"low": oh.ReasoningEffort.LOW, "high": oh.ReasoningEffort.HIGH}
    about = oh.SystemContent.new().with_conversation_start_date("2026-03-04")
    about = about.with_reasoning_effort(effort.get(kwargs.get("reasoning_effort", ""), oh.ReasoningEffort.MEDIUM))
    out = [oh.Message.from_role_and_content(oh.Role.SYSTEM, about)]
    declared = [
        oh.ToolDescription.new(f["name"], f["description"], parameters=f["parameters"])
        for f in (t["function"] for t in tools)
    ]
    rest = list(messages)
    developer = oh.DeveloperContent.new()
    leads = rest[0]["role"] in ("system", "developer")
    if leads:
        developer = developer.with_instructions(text_of(rest.pop(0)["content"], "\n"))
    if declared:
        developer = developer.with_function_tools(declared)
    if leads or declared:
        out.append(oh.Message.from_role_and_content(oh.Role.DEVELOPER, developer))
    for message in rest:
        out.extend(_harmony_messages(oh, message))
    tokens = encoding.render_conversation_for_completion(oh.Conversation.from_messages(out), oh.Role.ASSISTANT)
    text: str = encoding.decode(tokens)
    return text


def _harmony_messages(oh: Any, message: dict[str, Any]) -> list[Any]:
    role, text = message["role"], text_of(message["content"], "\n")
    if role in ("system", "developer"):
        return [oh.Message.from_role_and_content(oh.Role.DEVELOPER, oh.DeveloperContent.new().with_instructions(text))]
    if role == "user":
        return [oh.Message.from_role_and_content(oh.Role.USER, text)]
    if role == "tool":
        author = oh.Author.new(oh.Role.TOOL, f"functions.{message['name']}")
        return [oh.Message.from_author_and_content(author, text).with_recipient("assistant").with_channel("commentary")]
    own = []
    calls = message.get("tool_calls", [])
    if message.get("reasoning"):
        own.append(oh.Message.from_role_and_content(oh.Role.ASSISTANT, message["reasoning"]).with_channel("analysis"))
    if text or not calls:
        channel = "commentary" if calls else "final"
        own.append(oh.Message.from_role_and_content(oh.Role.ASSISTANT, text).with_channel(channel))
    for one in calls:
        called = oh.Message.from_role_and_content(oh.Role.ASSISTANT, one["function"]["arguments"]).with_channel(
            "commentary"
        )
        own.append(called.with_recipient(f"functions.{one['function']['name']}").with_content_type("<|constrain|>json"))
    return own


SPECIAL = [
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]", "[THINK]"),
    "[/THINK]",
]


def mistral(version: int, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[Any] | None:
    """Return the prompt that mistral-common writes: special tokens as lists of one, and the texts between them."""
    import base64

    from mistral_common.protocol.instruct.normalize import get_normalizer
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers import instruct
    from mistral_common.tokens.tokenizers.base import TokenizerVersion
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    vocab = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(256)
    ]
    special = [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(SPECIAL)]
    number = TokenizerVersion(f"v{version}")
    tekken = Tekkenizer(vocab, special, r".|\n", 256 + len(SPECIAL), len(SPECIAL), number)
    kind = getattr(instruct, f"InstructTokenizerV{version}")
    plain = [{key: value for key, value in message.items() if key != "reasoning"} for message in messages]
    try:
        request = ChatCompletionRequest.from_openai(messages=plain, tools=tools or None)
        tokens = kind(tekken).encode_instruct(get_normalizer(number).from_chat_completion_request(request)).tokens
    except Exception as error:
        print(f"  v{version} refuses: {type(error).__name__}: {str(error)[:100]}")
        return None
    out: list[Any] = []
    run: list[int] = []
    for token in [*tokens, None]:
        if token is not None and token >= len(SPECIAL):
            run.append(token - len(SPECIAL))
            continue
        if run:
            out.append(bytes(run).decode())
            run = []
        if token is not None:
            out.append([SPECIAL[token]])
    return out


def main() -> None:
    """Write both files."""
    GOLDEN.mkdir(exist_ok=True)
    with (GOLDEN / "harmony.jsonl").open("w", encoding="utf-8") as file:
        for case, messages, tools, kwargs in CASES + HARMONY_ONLY:
            row = {"case": case, "messages": messages, "tools": tools, "kwargs": kwargs}
            file.write(json.dumps({**row, "expected": harmony(messages, tools, kwargs)}, ensure_ascii=False) + "\n")
    with (GOLDEN / "mistral.jsonl").open("w", encoding="utf-8") as file:
        for version in (3, 7, 11, 13):
            for case, messages, tools, kwargs in CASES:
                print(case)
                row = {"version": version, "case": case, "messages": messages, "tools": tools, "kwargs": kwargs}
                file.write(
                    json.dumps({**row, "expected": mistral(version, messages, tools)}, ensure_ascii=False) + "\n"
                )


if __name__ == "__main__":
    main()
