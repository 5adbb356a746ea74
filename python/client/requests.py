"""Requests, made of what a caller says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from octavo.v1 import control_pb2, inference_pb2

__all__ = ["Prompt", "generate_request", "json_text", "pause_mode"]

#: A text, token ids, messages with role and content, or a Conversation with tools and more.
Prompt: TypeAlias = "str | Sequence[int] | Sequence[Mapping[str, Any]] | inference_pb2.Conversation"


def generate_request(
    prompt: Prompt,
    *,
    model: str = "",
    request_id: str = "",
    structured_outputs: inference_pb2.StructuredOutputs | None = None,
    return_token_ids: bool = False,
    return_prompt_token_ids: bool = False,
    cache_salt: str = "",
    priority: int = 0,
    session_id: str = "",
    data_parallel_rank: int | None = None,
    **sampling_params: Any,
) -> inference_pb2.GenerateRequest:
    """Return a request; sampling parameters have the names of SamplingParams, and None leaves one to the server.

    Raises ValueError for a name that is none, TypeError for a value of another type.
    """
    given = {name: value for name, value in sampling_params.items() if value is not None}
    return inference_pb2.GenerateRequest(
        model=model,
        request_id=request_id,
        sampling_params=inference_pb2.SamplingParams(**given),
        structured_outputs=structured_outputs,
        output_options=inference_pb2.OutputOptions(
            token_ids=return_token_ids, prompt_token_ids=return_prompt_token_ids
        ),
        cache_salt=cache_salt,
        priority=priority,
        session_id=session_id,
        data_parallel_rank=data_parallel_rank,
        **_prompt(prompt),
    )


def _prompt(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"text": prompt}
    if isinstance(prompt, inference_pb2.Conversation):
        return {"conversation": prompt}
    items: list[Any] = list(prompt)
    if items and all(isinstance(item, Mapping) for item in items):
        return {"conversation": inference_pb2.Conversation(messages=[_message(item) for item in items])}
    return {"token_ids": inference_pb2.TokenIds(ids=items)}


def _message(given: Mapping[str, Any]) -> inference_pb2.Message:
    content = given.get("content")
    parts: Iterable[str] = [] if content is None else [content] if isinstance(content, str) else content
    return inference_pb2.Message(
        role=given["role"],
        content=[inference_pb2.ContentPart(text=part) for part in parts],
        name=given.get("name", ""),
        tool_call_id=given.get("tool_call_id", ""),
        reasoning=given.get("reasoning", ""),
    )


def pause_mode(word: str | None) -> Any:
    """Return the mode that a word names; None: the server's default. Raises ValueError for another word."""
    return control_pb2.PauseMode.Value(f"PAUSE_MODE_{(word or 'unspecified').upper()}")


def json_text(value: Mapping[str, Any]) -> str:
    """Return an object as the JSON text that it travels as."""
    return json.dumps(value)
