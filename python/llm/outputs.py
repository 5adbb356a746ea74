"""What a request gave, in the shape that vLLM's library gives it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CompletionOutput", "RequestOutput"]


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One output of a request."""

    index: int
    text: str  # without the stop string, and without special tokens
    token_ids: list[int]  # the stop id that ended the output is the last of them
    finish_reason: str | None = None  # "stop", "length" or "error"; None: not finished
    stop_reason: int | str | None = None  # the stop string or stop id of the request that ended it


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A request and its outputs."""

    request_id: str
    prompt: str | None  # text; None where token ids were given
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]  # one
    finished: bool
    num_cached_tokens: int | None = None  # prompt tokens that were found in the prefix cache
    error: str | None = None  # with finish_reason "error": what happened
