"""What a request has to tell besides tokens, and which of its tokens the frontend was told of already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from octavo.wire.frontend import Logprobs

if TYPE_CHECKING:
    from octavo.wire.frontend import SamplingExtras, SamplingParams

__all__ = ["News", "join", "rows_of", "without_prompt"]


class News:
    """Belongs to a request with extras. Tokens may wait here for `stream_interval`, log probabilities wait with them.

    Invariant: what waits begins at the first token that was not told.
    """

    __slots__ = ("_interval", "_logprobs", "_prompt", "reads_prompt", "told")

    def __init__(self, extras: SamplingExtras, emitted: int) -> None:
        """`emitted`: tokens that the frontend had before; with any, it has the prompt's log probabilities too."""
        self._interval = extras.stream_interval
        self._logprobs: list[Logprobs] = []
        self._prompt: list[Logprobs] = []
        self.told = emitted
        self.reads_prompt = extras.prompt_logprobs is not None and not emitted  # they are still to be told

    def started(self) -> None:
        """Note that the prompt is computed from its start again."""
        self._prompt.clear()

    def read_prompt(self, part: Logprobs) -> None:
        """Take log probabilities of further tokens of the prompt."""
        self._prompt.append(part)

    def took(self, part: Logprobs | None, tokens: int) -> None:
        """Take the log probabilities of new tokens, of which the first `tokens` count."""
        if part is not None and tokens:
            self._logprobs.append(rows_of(part, 0, tokens))

    def due(self, emitted: int, ended: bool) -> bool:
        """Whether the frontend is to be told now: at the first token, at the end, every `stream_interval` tokens."""
        return ended or not self.told or emitted - self.told >= self._interval

    def tell(self, emitted: int) -> tuple[Logprobs | None, Logprobs | None]:
        """Return the log probabilities of the tokens that were not told, and of the prompt; both count as told."""
        self.told = emitted
        logprobs, prompt = join(self._logprobs), join(self._prompt)
        self._logprobs.clear()
        self._prompt.clear()
        self.reads_prompt = False
        return logprobs, prompt


def join(parts: list[Logprobs]) -> Logprobs | None:
    """Return the log probabilities of consecutive tokens as one record; None where there are none."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    return Logprobs(
        parts[0].width,
        b"".join(part.ids for part in parts),
        b"".join(part.values for part in parts),
        b"".join(part.ranks for part in parts),
    )


def rows_of(part: Logprobs, start: int, stop: int) -> Logprobs:
    """Return the rows from `start` to `stop`."""
    if start == 0 and 4 * stop >= len(part.ranks):
        return part
    first, last = 4 * start * part.width, 4 * stop * part.width
    return Logprobs(part.width, part.ids[first:last], part.values[first:last], part.ranks[4 * start : 4 * stop])


def without_prompt(params: SamplingParams) -> SamplingParams:
    """Return the parameters without the wish for the prompt's log probabilities."""
    extras = params.extras
    if extras is None or extras.prompt_logprobs is None:
        return params
    return msgspec.structs.replace(params, extras=msgspec.structs.replace(extras, prompt_logprobs=None))
