"""An agent's conversation as Codex has it: streamed calls, thoughts carried by the client, nothing stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from bench.frontend.processes import Programs, Stack, running
from tests.e2e.test_calls import FAMILIES, make_folder

THOUGHT, SECOND = "I should list the files.", "One file. I am done."
ARGUMENTS = {"command": ["bash", "-lc", "ls"], "workdir": "/tmp"}
ANSWER = "There is a README."
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}T[{{ m.reasoning_content }}]{% endif %}"
    "{{ m.content or '' }}{% for call in m.tool_calls or [] %}C[{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}]{% endfor %}{{ '\n' }}{% endfor %}<|im_start|>assistant\n"
)
#: Functions that the agent runs itself.
TOOLS: Any = [
    {
        "type": "function",
        "name": "shell",
        "description": "Runs a shell command and returns its output.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "array", "items": {"type": "string"}},
                "workdir": {"type": "string"},
                "timeout_ms": {"type": "number"},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    },
    {
        "type": "function",
        "name": "update_plan",
        "strict": False,
        "parameters": {"type": "object", "properties": {"plan": {"type": "array"}}, "additionalProperties": False},
    },
]


@pytest.fixture(scope="module")
def stack(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A scripted model that calls, and answers only where it sees both its thought and what the call gave."""
    folder = tmp_path_factory.mktemp("codex")
    make_folder(folder, FAMILIES["qwen3"])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    call = json.dumps({"name": "shell", "arguments": ARGUMENTS})
    shown = f"T[{THOUGHT}]C[shell{json.dumps(ARGUMENTS)}]\ntool: README\n"
    rules = [
        (ids(shown), f"<think>\n{SECOND}\n</think>\n\n{ANSWER}"),
        (ids("tool: "), "I have forgotten what I did."),
        ([], f"<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{call}\n</tool_call>"),
    ]
    file = folder / "rules.jsonl"
    lines = [{"when": when, "say": [*ids(say), tokenizer.eos_token_id]} for when, say in rules]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3", "enable_auto_tool_choice": True}
    flags = ("--step-time", "1", "--tokens-per-step", "5", "--output", f"rules:{file}")
    with running(programs, folder, *flags, settings=settings) as stack:
        yield stack


def turn(stack: Stack, items: list[Any], **fields: Any) -> list[dict[str, Any]]:
    """Send a turn as the agent does; return the events of the answer."""
    body = {
        "model": "mock",
        "instructions": "You are a coding agent.",
        "input": items,
        "tools": TOOLS,
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199a0c2-0000-7000-8000-000000000000",
        "text": {"verbosity": "low"},
    } | fields
    headers = {
        "Authorization": "Bearer none",
        "Accept": "text/event-stream",
        "OpenAI-Beta": "responses=experimental",
        "originator": "codex_cli_rs",
        "session_id": "0199a0c2-0000-7000-8000-000000000000",
    }
    answer = httpx.post(f"http://127.0.0.1:{stack.port}/v1/responses", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, _, data = block.partition("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def done(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that the agent keeps: those that are told to be whole."""
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def carried(item: dict[str, Any], plain: bool) -> dict[str, Any]:
    """An item as the agent sends it back: without ids, thoughts as their code alone, or as their text alone."""
    kept = {name: value for name, value in item.items() if name not in ("id", "status")}
    if kept["type"] == "reasoning":
        kept |= {"encrypted_content": None} if plain else {"content": None}
    return kept


@pytest.mark.parametrize("plain", [False, True], ids=["encoded", "plain"])
def test_a_turn_of_calls(stack: Stack, plain: bool) -> None:
    developer = user("<permissions>read only</permissions>") | {"role": "developer"}
    items = [developer, user("<environment_context><cwd>/tmp</cwd></environment_context>"), user("What is here?")]
    first = turn(stack, items)
    assert [event["type"] for event in first[:2]] == ["response.created", "response.in_progress"]
    thought, call = done(first)
    assert thought["type"] == "reasoning"
    assert thought["content"][0]["text"].strip() == THOUGHT
    assert thought["encrypted_content"]
    assert (call["type"], call["name"]) == ("function_call", "shell")
    assert json.loads(call["arguments"]) == ARGUMENTS
    pieces = [event["delta"] for event in first if event["type"] == "response.function_call_arguments.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == call["arguments"]
    last = first[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["store"] is False
    usage = last["response"]["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0
    assert "cached_tokens" in usage["input_tokens_details"]

    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "README"}
    second = turn(stack, [*items, carried(thought, plain), carried(call, plain), output])
    again, said = done(second)
    assert again["content"][0]["text"].strip() == SECOND
    assert (said["role"], said["content"][0]["text"].strip()) == ("assistant", ANSWER)
    texts = [event["delta"] for event in second if event["type"] == "response.output_text.delta"]
    assert "".join(texts) == said["content"][0]["text"]
    # Nothing is kept of it.
    found = httpx.get(f"http://127.0.0.1:{stack.port}/v1/responses/{last['response']['id']}", timeout=20)
    assert found.status_code == 404


def test_what_it_does_not_have_is_refused_by_name(stack: Stack) -> None:
    body = {"model": "mock", "input": [user("hi")], "stream": True, "store": False}
    for tool in ({"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "local_shell"}):
        answer = httpx.post(f"http://127.0.0.1:{stack.port}/v1/responses", json=body | {"tools": [tool]}, timeout=20)
        assert answer.status_code == 400
        assert tool["type"] in answer.json()["error"]["message"]


def test_items_are_named_by_their_ids(stack: Stack) -> None:
    """Clients that let the server keep responses send references in place of items."""
    first = done(turn(stack, [user("What is here?")], store=True))
    references = [{"type": "item_reference", "id": item["id"]} for item in first]
    output = {"type": "function_call_output", "call_id": first[1]["call_id"], "output": "README"}
    second = done(turn(stack, [user("What is here?"), *references, output], store=True))
    assert second[-1]["content"][0]["text"].strip() == ANSWER
