"""What a request gave, in the shape that vLLM's library gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.llm.logprobs import PromptLogprobs, SampleLogprobs

__all__ = ["CompletionOutput", "RequestOutput"]


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One output of a request."""

    index: int
    text: str  # without the stop string and special tokens, unless the parameters say otherwise
    token_ids: list[int]  # the stop id that ended the output is the last of them
    logprobs: SampleLogprobs | None = None  # one dict for each of token_ids, where they were asked for
    finish_reason: str | None = None  # "stop", "length", "repetition" or "error"; None: not finished
    stop_reason: int | str | None = None  # the stop string or stop id of the request that ended it


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """A request and its outputs."""

    request_id: str
    prompt: str | None  # text; None where token ids were given
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]  # n of them
    finished: bool
    num_cached_tokens: int | None = None  # prompt tokens that were found in the prefix cache
    prompt_logprobs: PromptLogprobs | None = None  # one item for each of prompt_token_ids, the first None
    error: str | None = None  # with finish_reason "error": what happened
