"""What one request did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Failure", "Record", "TokensFrom"]

TokensFrom = Literal["usage", "tokenizer", "chunks"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: `kind` is short and countable, `message` is what the server or the system said."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request, as the client saw it. Times in seconds; points in time are readings of one monotonic clock.

    A failed request has `failure` and neither `ttft` nor `latency`: it can not be mistaken for a fast one.
    """

    start: float  # when the request was written to the socket
    finished: float  # when the response was complete, or the failure known
    queue_time: float = 0.0  # wait for a free place under --max-concurrency, before `start`
    prompt_tokens: int = 0
    output_tokens: int = 0  # of a failed request: 0
    asked_tokens: int = 0  # output tokens that were asked for
    tokens_from: TokensFrom = "usage"  # where output_tokens comes from
    ttft: float | None = None  # start to the first chunk with a token
    itl: tuple[float, ...] = ()  # gaps between chunks with tokens
    latency: float | None = None  # start to the last chunk
    text: str = ""
    reasoning: str = ""
    failure: Failure | None = None
    id: str = ""

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None where there is no token after the first."""
        if self.latency is None or self.ttft is None or self.output_tokens < 2:
            return None
        return (self.latency - self.ttft) / (self.output_tokens - 1)
