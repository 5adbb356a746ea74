"""How many tokens a request gets in a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from octavo.engine_core.request import Request

__all__ = ["SchedLimits", "Share", "better_whole", "cut", "share"]


@dataclass(frozen=True, slots=True)
class SchedLimits:
    """What bounds a step and a request."""

    max_num_seqs: int
    max_num_batched_tokens: int  # of one step
    max_model_len: int
    window: int = 1  # plans in flight
    num_drafts: int = 0  # at most, for each decode row
    chunk_align: int = 1  # tokens; where chunks of a prompt end, but the last one
    whole_chunks: bool = False  # cutting a prompt costs much: see `cut` and `better_whole`
    vocab_size: int = 1 << 31  # token ids are below
    hidden_size: int = 0  # numbers of a vector that may stand for a token; 0: none may
    long_prefill_threshold: int = 0  # prompts with more tokens to compute yield to others; 0: none do
    max_long_prefills: int = 1  # such prompts computed at a time
    max_num_waiting: int | None = None  # requests beyond those that could start at once; None: any number
    priorities: bool = False  # requests with a lower priority value go first; otherwise all in the order of arrival
    pools: bool = False  # requests get vectors, not tokens
    pools_last: bool = False  # one vector needs the last token's hidden state alone: prefixes may be in the cache
    whole_prompts: bool = False  # prompts are never cut


#: Where a step has so many chunks' alignments of room for prompts, a chunk that cannot be aligned waits for the next.
_ROOMY = 8


class Share(NamedTuple):
    """One request's tokens in a step; `tokens` includes the drafts."""

    tokens: int
    drafts: int
    samples: bool


def share(request: Request, budget: int, limits: SchedLimits) -> Share | None:
    """Return what a request gets of a budget of tokens, or None if it has to wait for results or for budget.

    A row that reaches the end of the tokens samples. It is not scheduled if, with all drafts in flight accepted,
    the request were at its limit already. Decode rows get drafts as far as limit and budget allow.
    """
    remaining = request.remaining
    if budget < remaining:
        count = cut(request.next_position, budget, limits)
        return Share(count, 0, False) if count > 0 else None
    room = request.limit - request.tokens_max - 1
    if remaining == 0 or room < 0:
        return None
    drafts = min(limits.num_drafts, room, budget - remaining) if remaining == 1 and limits.num_drafts else 0
    if request.matcher is not None:
        drafts = 0  # its masks are for one token
    return Share(remaining + drafts, drafts, True)


def cut(start: int, budget: int, limits: SchedLimits) -> int:
    """Return the tokens of a chunk that begins at `start` and that `budget` tokens cut short; 0: it had better wait."""
    if limits.whole_prompts:
        return 0
    aligned = (start + budget) // limits.chunk_align * limits.chunk_align - start
    if aligned > 0:
        return aligned
    # Decode rows alone leave a step that is roomy enough for an aligned chunk: whoever took the rest makes progress.
    roomy = limits.max_num_batched_tokens - limits.max_num_seqs >= _ROOMY * limits.chunk_align
    return 0 if roomy and limits.whole_chunks else budget


def better_whole(tokens: int, limits: SchedLimits) -> bool:
    """Tell whether a prompt of `tokens` tokens that does not fit what is left of a step had better begin in the next.

    Where cuts are costly and the prompt is at most half of a step: the step is at least half full then, and large
    enough. The rows that may fill it for long, those of one token, leave room for the prompt.
    """
    room = limits.max_num_batched_tokens - limits.max_num_seqs
    return limits.whole_chunks and 2 * tokens <= limits.max_num_batched_tokens and tokens <= room
