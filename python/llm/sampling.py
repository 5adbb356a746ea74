"""How a user of the library asks for tokens."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SamplingParams", "body_fields"]

#: vLLM's default, where a user gives no number.
_DEFAULT_MAX_TOKENS = 16
#: Stands for "as many as fit": the renderer cuts it to what the context leaves.
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True, init=False)
class SamplingParams:
    """How to choose tokens and when to stop. Names and defaults are vLLM's.

    temperature: 0 is greedy. top_p: above 0, at most 1. top_k: 0 or -1 for all tokens. seed: None lets the LLM draw one
    from its own. max_tokens: None for as many as the context leaves. stop: at most four strings that end the output and
    are not part of it. stop_token_ids: further ids that end it. ignore_eos: go on after the model's own end tokens.
    structured_outputs: what the output must be, as the server's field of that name: {"json": schema}, {"regex": …}, ….
    """

    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    structured_outputs: dict[str, Any] | None

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
        max_tokens: int | None = _DEFAULT_MAX_TOKENS,
        stop: str | Sequence[str] | None = None,
        stop_token_ids: Sequence[int] | None = None,
        ignore_eos: bool = False,
        structured_outputs: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        """Keep the arguments; ranges are checked with the request, by the same rules as the server's.

        Raises TypeError for a name that octavo does not have, ValueError for a number that is not finite.
        """
        if unknown:
            raise TypeError(_unknown(next(iter(unknown))))
        for name, number in (("temperature", temperature), ("top_p", top_p)):
            if not math.isfinite(number):  # JSON has no such numbers: the default would be taken in silence
                raise ValueError(f"SamplingParams: {name} must be a finite number; got {number}")
        values = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "seed": seed,
            "max_tokens": max_tokens,
            "stop": (stop,) if isinstance(stop, str) else tuple(stop or ()),
            "stop_token_ids": tuple(stop_token_ids or ()),
            "ignore_eos": ignore_eos,
            "structured_outputs": structured_outputs,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)


def body_fields(params: SamplingParams | None) -> dict[str, Any]:
    """Return the fields of a request's body. None: the model's generation_config.json decides, with 16 tokens."""
    if params is None:
        return {"max_tokens": _DEFAULT_MAX_TOKENS}
    return {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "seed": params.seed,
        "max_tokens": _UNBOUNDED if params.max_tokens is None else params.max_tokens,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
        "ignore_eos": params.ignore_eos,
        "structured_outputs": params.structured_outputs,
    }


def _unknown(name: str) -> str:
    known = [field.name for field in fields(SamplingParams)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"octavo samples with {', '.join(known)}"
    return f"SamplingParams has no parameter {name!r}; {hint}"
