"""Conversations that grow turn by turn: the cost of a turn when the conversation is short and when it is long."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo_native

from bench.render.engines import Engines, request

if TYPE_CHECKING:
    from bench.render.conversations import Conversations, Messages

__all__ = ["SHARED", "Family", "Part", "by_template", "grow"]

SHARED = Path(os.environ.get("OCTAVO_SHARED", Path(__file__).resolve().parents[3] / "shared"))
_TEMPLATES = SHARED / "oracles" / "templates" / "jinja"
#: Templates that stand for their families; their loops look at the conversation in different ways.
_FAMILIES = (
    "llamacpp_inline/teknium-OpenHermes-2.5-Mistral-7B",
    "llamacpp/Qwen-Qwen3-0.6B",
    "llamacpp/Qwen3.5-4B",
    "llamacpp/meta-llama-Llama-3.1-8B-Instruct",
    "llamacpp/mistralai-Mistral-Nemo-Instruct-2407",
    "llamacpp/google-gemma-2-2b-it",
    "llamacpp/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "llamacpp/openai-gpt-oss-120b",
    "llamacpp/GLM-4.7-Flash",
    "llamacpp/moonshotai-Kimi-K2",
    "llamacpp/MiniMax-M2",
    "llamacpp/ibm-granite-granite-4.0",
)
#: Tokens that a template writes and a text may be cut behind, if the vocabulary has them as the template's model does.
_SPECIAL = re.compile(r"<[|｜]?[\w▁]+[|｜]?>|\[/?[A-Z_]+\]|\]~!?b[\[\]]|\[e~\[")
#: Parts of a growing conversation that are told apart.
_PARTS = 8
#: Turns at either end of a conversation that are compared.
_ENDS = 50
#: Tokens of a turn.
_TURN = 180
#: Conversations that nobody has seen, for comparison.
_NEW = 5


@dataclass(frozen=True, slots=True)
class Part:
    """Turns of a growing conversation: milliseconds of CPU of one, on average."""

    turns: int  # up to which
    tokens: int  # of the conversation then
    render_ms: float
    encode_ms: float
    request_ms: float  # both, as the server does it: from the body of a request to packed ids
    transformers_ms: float  # of the last turn


@dataclass(frozen=True, slots=True)
class Family:
    """A template: milliseconds of CPU from the body of a request to packed ids."""

    template: str
    tokens: int  # of the conversation at its end
    first_ms: float  # a turn of the first ones, the median
    last_ms: float  # a turn of the last ones
    new_ms: float  # a conversation of the same length of which nothing is known


def _body(messages: Messages) -> bytes:
    return json.dumps({"messages": messages}, ensure_ascii=False).encode()


def grow(engines: Engines, texts: Conversations, turns: int) -> list[Part]:
    """Let two conversations grow: one that is rendered and encoded, one as requests."""
    messages: Messages = []
    asked: Messages = []
    parts: list[Part] = []
    spent: list[tuple[float, float, float]] = []
    drawn = (texts.draw(turns * _TURN, name) for name in ("growing", "growing requests"))
    for turn, other in zip(*drawn, strict=True):
        messages.append(turn)
        asked.append(other)
        body = _body(asked)
        began = time.thread_time()
        text = engines.text(messages)
        rendered = time.thread_time()
        ids = engines.encode(text)
        encoded = time.thread_time()
        engines.request(body)
        spent.append((rendered - began, encoded - rendered, time.thread_time() - encoded))
        if len(messages) % (turns // _PARTS) == 0:
            began = time.thread_time()
            engines.transformers(messages)
            whole = (time.thread_time() - began) * 1000
            render, encode, asking = (1000 * statistics.fmean(times) for times in zip(*spent, strict=True))
            parts.append(Part(len(messages), len(ids), render, encode, asking, whole))
            spent.clear()
    return parts


def by_template(model: Path, scratch: Path, texts: Conversations, turns: int) -> list[Family]:
    """Let a conversation grow in each family's template, with one vocabulary and the special tokens of the family."""
    found = []
    shutil.copytree(model, scratch)
    vocabulary = json.loads((model / "tokenizer.json").read_bytes())
    for name in _FAMILIES:
        shutil.copyfile(_TEMPLATES / f"{name}.jinja", scratch / "chat_template.jinja")
        template = (scratch / "chat_template.jinja").read_text(encoding="utf-8")
        own = json.dumps(_with_special(vocabulary, _SPECIAL.findall(template)))
        (scratch / "tokenizer.json").write_text(own, encoding="utf-8")
        found.append(_family(name, octavo_native.Renderer(scratch), texts, turns))
    return found


def _with_special(vocabulary: dict[str, Any], tokens: list[str]) -> dict[str, Any]:
    """Return a tokenizer.json with more special tokens."""
    added = list(vocabulary["added_tokens"])
    known = {token["content"] for token in added}
    first = max([*vocabulary["model"]["vocab"].values(), *(token["id"] for token in added)]) + 1
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    new = (token for token in dict.fromkeys(tokens) if token not in known)
    added += [{"id": first + number, "content": token, **flags} for number, token in enumerate(new)]
    return {**vocabulary, "added_tokens": added}


def _family(name: str, renderer: octavo_native.Renderer, texts: Conversations, turns: int) -> Family:
    spent = []
    messages: Messages = []
    for turn in texts.draw(turns * _TURN, f"growing in {name}"):
        messages.append(turn)
        # Templates of some families refuse what does not end with a user's turn.
        if len(messages) % 2:
            body = _body(messages)
            began = time.thread_time()
            ids = request(renderer, body)
            spent.append(time.thread_time() - began)
    new = []
    for number in range(_NEW):
        body = _body(texts.draw(turns * _TURN, f"new in {name} {number}")[: len(messages) - 1])
        began = time.thread_time()
        request(renderer, body)
        new.append(time.thread_time() - began)
    middle = (1000 * statistics.median(times) for times in (spent[: _ENDS // 2], spent[-_ENDS // 2 :], new))
    return Family(name.split("/")[1], len(ids) // 4, *middle)
