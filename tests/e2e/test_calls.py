"""Tool calls and reasoning through the official SDK: five families, scripted outputs, streamed and not, any steps."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from bench.frontend.processes import Programs, Stack, running

THOUGHT, SAID = "I should look – it up.", "Let me see."
CALLS = [("weather", {"city": "Köln", "days": 3}), ("clock", {})]

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "clock",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    },
]


@dataclass(frozen=True)
class Family:
    """A family's parsers, its markers (special or not), the head of its turn, and one answer as it writes it."""

    tool: str
    reasoning: str
    special: tuple[str, ...]
    plain: tuple[str, ...]
    head: str
    text: str
    end: str = "<|im_end|>"
    calls: int = 2


QWEN = (
    f"<think>\n{THOUGHT}\n</think>\n\n{SAID}\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": 3}}\n</tool_call>\n'
    '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
)
CODER = (
    f"<think>\n{THOUGHT}\n</think>\n\n{SAID}\n"
    "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>\n<tool_call>\n<function=clock>\n</function>\n</tool_call>"
)
KIMI = (
    f"<think>{THOUGHT}</think>{SAID}<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
    '<|tool_call_argument_begin|>{"city": "Köln", "days": 3}<|tool_call_end|><|tool_call_begin|>functions.clock:1'
    "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"
)
MISTRAL = (
    f'[THINK]{THOUGHT}[/THINK]{SAID}[TOOL_CALLS]weather[ARGS]{{"city": "Köln", "days": 3}}[TOOL_CALLS]clock[ARGS]{{}}'
)
HARMONY = (
    f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>commentary<|message|>{SAID}<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Köln", "days": 3}'  # the end of a call ends the turn
)
FAMILIES = {
    "qwen3": Family(
        "hermes",
        "qwen3",
        ("<|im_start|>",),
        ("<think>", "</think>", "<tool_call>", "</tool_call>"),
        "<|im_start|>assistant\n",
        QWEN,
    ),
    "qwen3_coder": Family("qwen3_coder", "qwen3", ("<|im_start|>",), ("<think>",), "<|im_start|>assistant\n", CODER),
    "kimi_k2": Family(
        "kimi_k2",
        "kimi_k2",
        (
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
        ("<think>", "</think>"),
        "<|im_assistant|>assistant<|im_middle|>",
        KIMI,
    ),
    "mistral": Family(
        "mistral", "mistral", ("[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]"), (), "[/INST]", MISTRAL, "</s>"
    ),
    "harmony": Family(
        "openai",
        "openai_gptoss",
        ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"),
        (),
        "<|start|>assistant",
        HARMONY,
        "<|call|>",
        calls=1,
    ),
}


def make_folder(folder: Path, family: Family) -> list[int]:
    """Save a tokenizer of bytes and the family's markers; return the ids of its answer, the end token last."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*family.special, family.end])
    tokenizer.add_tokens(list(family.plain))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=family.end)
    fast.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}" + family.head
    fast.save_pretrained(folder)
    ids: list[int] = fast.encode(family.text, add_special_tokens=False)
    return [*ids, fast.eos_token_id]


def gathered(completion: ChatCompletion) -> dict[str, Any]:
    """What a completion says, without what is drawn."""
    choice = completion.choices[0]
    calls = choice.message.tool_calls or []
    assert len({call.id for call in calls}) == len(calls)
    return {
        "reasoning": (choice.message.model_extra or {}).get("reasoning"),
        "content": choice.message.content,
        "calls": [(call.function.name, call.function.arguments) for call in calls if call.type == "function"],
        "finish": choice.finish_reason,
    }


def tools(strict: bool) -> Any:
    """TOOLS, strict or not."""
    return [tool | {"function": tool["function"] | {"strict": strict}} for tool in TOOLS]


def answers(client: OpenAI, asked: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Ask without and with streaming; yield what was gathered and the usage."""
    messages: Any = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(model="mock", messages=messages, tools=asked)
    yield gathered(whole), whole.usage
    state, thoughts = ChatCompletionStreamState(), []
    for chunk in client.chat.completions.create(
        model="mock", messages=messages, tools=asked, stream=True, stream_options={"include_usage": True}
    ):
        state.handle_chunk(chunk)
        if chunk.choices:
            thoughts.append((chunk.choices[0].delta.model_extra or {}).get("reasoning") or "")
    final = state.get_final_completion()
    yield gathered(final) | {"reasoning": "".join(thoughts)}, final.usage


@contextlib.contextmanager
def at_pace(step: int, programs: Programs, folder: Path, family: Family, ids: list[int]) -> Iterator[Stack]:
    """Run a frontend that parses as the family asks, before an engine that says `ids`, `step` of them at a time."""
    settings = {
        "tool_call_parser": family.tool,
        "reasoning_parser": family.reasoning,
        "enable_auto_tool_choice": True,
    }
    flags = ("--step-time", "0", "--tokens-per-step", str(step), "--output", "ids:" + ",".join(map(str, ids)))
    with running(programs, folder, *flags, settings=settings) as stack:
        yield stack


@pytest.mark.parametrize("name", FAMILIES)
def test_the_official_client_gathers_the_same(name: str, programs: Programs, tmp_path: Path) -> None:
    family = FAMILIES[name]
    ids = make_folder(tmp_path, family)
    results, thoughts = [], set()
    for step in (1, 4, len(ids)):
        with (
            at_pace(step, programs, tmp_path, family, ids) as stack,
            OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", max_retries=0) as client,
        ):
            for result, usage in answers(client, tools(strict=True)):
                results.append(result)
                assert usage.completion_tokens == len(ids)
                thoughts.add(usage.completion_tokens_details.reasoning_tokens)
    first = results[0]
    assert all(result == first for result in results)
    assert first["reasoning"].strip() == THOUGHT
    assert first["content"].strip() == SAID
    assert [(called, json.loads(arguments)) for called, arguments in first["calls"]] == CALLS[: family.calls]
    assert first["finish"] == "tool_calls"
    assert len(thoughts) == 1
    assert len(THOUGHT.encode()) <= thoughts.pop() <= len(THOUGHT.encode()) + 2  # newlines of the layout may count


def test_auto_finds_the_family_and_says_why(programs: Programs, tmp_path: Path) -> None:
    """What the log says, and that answers come through it; nothing known: tools are refused by name."""
    ids = make_folder(tmp_path / "qwen", FAMILIES["qwen3"])
    settings = {"tool_call_parser": "auto", "reasoning_parser": "auto", "enable_auto_tool_choice": True}
    flags = ("--step-time", "0", "--output", "ids:" + ",".join(map(str, ids)))
    with (
        running(programs, tmp_path / "qwen", *flags, settings=settings | {"log_level": "info"}) as stack,
        OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", max_retries=0) as client,
    ):
        (result, _), _ = answers(client, tools(strict=True))
        log = (stack.folder / "frontend.log").read_text(encoding="utf-8")
    assert [called for called, _ in result["calls"]] == ["weather", "clock"]
    assert 'tool call parser auto: hermes, as the model\'s chat template or tokens have "<tool_call>"' in log
    assert 'reasoning parser auto: think, as the model\'s chat template or tokens have "</think>"' in log

    make_folder(tmp_path / "plain", Family("", "", (), (), "A:", ""))
    with (
        running(programs, tmp_path / "plain", settings=settings | {"log_level": "info"}) as stack,
        OpenAI(base_url=f"http://127.0.0.1:{stack.port}/v1", api_key="none", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "hi"}]
        with pytest.raises(BadRequestError, match=r"auto found no format .* --format-file"):
            client.chat.completions.create(model="mock", messages=messages, tools=TOOLS)
        log = (stack.folder / "frontend.log").read_text(encoding="utf-8")
    assert "tool call parser auto: the model's chat template and tokens match no known format" in log
