"""How a user of the library asks for tokens."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["RepetitionDetectionParams", "SamplingParams", "body_fields", "chat_fields"]

#: vLLM's default, where a user gives no number.
_DEFAULT_MAX_TOKENS = 16
#: Stands for "as many as fit": the renderer cuts it to what the context leaves.
_UNBOUNDED = 2**31 - 1
#: Parameters that are lists; a text stands for a list of one.
_LISTS = {
    "stop", "stop_token_ids", "bad_words", "logprob_token_ids", "allowed_token_ids", "thinking_start_token_ids",
    "thinking_end_token_ids",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RepetitionDetectionParams:
    """End an output that repeats a pattern of min_pattern_size to max_pattern_size tokens min_count times in a row."""

    max_pattern_size: int = 0  # 0: no detection
    min_pattern_size: int = 0
    min_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """All parameters, with the names and defaults of vLLM."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    ignore_eos: bool = False
    max_tokens: int | None = _DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    repetition_detection: RepetitionDetectionParams | None = None
    thinking_token_budget: int | None = None
    thinking_start_token_ids: tuple[int, ...] = ()  # with a budget; none: the model's <think> and </think>
    thinking_end_token_ids: tuple[int, ...] = ()
    stream_interval: int = 1
    structured_outputs: Mapping[str, Any] | None = None  # as the server's field of that name


class SamplingParams(_Fields):
    """How to choose tokens and when to stop. Names and defaults are vLLM's; docs/library.md says what each does.

    temperature: 0 is greedy. top_k: 0 or -1 for all tokens. seed: None lets the LLM draw one from its own; output i of
    n has a seed made of it and i. max_tokens: None for as many as the context leaves. stop: a string or up to four.
    """

    __slots__ = ()

    def __init__(self, **given: Any) -> None:
        """Keep the parameters; ranges are checked with the request, by the same rules as the server's.

        None stands for the default, but for seed and max_tokens. Raises TypeError for a name that octavo does not have,
        ValueError for a number that is not finite.
        """
        known = {field.name for field in fields(_Fields)}
        for name, value in given.items():
            if name not in known:
                raise TypeError(_unknown(name))
            if isinstance(value, float) and not math.isfinite(value):
                # JSON has no such numbers: the default would be taken in silence.
                raise ValueError(f"SamplingParams: {name} must be a finite number; got {value}")
        kept = {name: value for name, value in given.items() if value is not None or name == "max_tokens"}
        for name in _LISTS & kept.keys():
            kept[name] = (kept[name],) if isinstance(kept[name], str) else tuple(kept[name])
        if isinstance(kept.get("repetition_detection"), Mapping):
            kept["repetition_detection"] = RepetitionDetectionParams(**kept["repetition_detection"])
        super().__init__(**kept)


def body_fields(params: SamplingParams | None) -> dict[str, Any]:
    """Return the fields of a completion's body. None: the model's generation_config.json decides, with 16 tokens."""
    if params is None:
        return {"max_tokens": _DEFAULT_MAX_TOKENS}
    body = {field.name: getattr(params, field.name) for field in fields(_Fields)}
    body["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    if params.max_tokens is None:
        body["max_tokens"] = _UNBOUNDED
    return body


def chat_fields(params: SamplingParams | None) -> dict[str, Any]:
    """Return the fields of a chat's body, which asks for log probabilities in another way."""
    body = body_fields(params)
    count = body.pop("logprobs", None)
    if count is not None:
        body |= {"logprobs": True, "top_logprobs": count}
    return body


def _unknown(name: str) -> str:
    known = [field.name for field in fields(_Fields)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"octavo samples with {', '.join(known)}"
    return f"SamplingParams has no parameter {name!r}; {hint}"
