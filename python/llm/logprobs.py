"""Log probabilities as a user of the library gets them: for each token a dict by token id, in vLLM's shape."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.wire.frontend import Logprobs

__all__ = ["Collected", "Logprob", "PromptLogprobs", "SampleLogprobs"]

TokenTexts = Callable[[Sequence[int]], list[str]]


@dataclass(frozen=True, slots=True)
class Logprob:
    """One token at one place."""

    logprob: float
    rank: int | None = None  # 1 is the best; None: not known, for tokens that were asked for by id
    decoded_token: str | None = None


#: Of an output: for each token the token itself and the others asked for.
SampleLogprobs = list[dict[int, Logprob]]
#: Of a prompt: None for its first token.
PromptLogprobs = list[dict[int, Logprob] | None]


class Collected:
    """Log probabilities of one sequence, packed until they are asked for."""

    __slots__ = ("_ids", "_ranks", "_values", "_width")

    def __init__(self) -> None:
        self._width = 0  # 0: none came
        self._ids = array("i")
        self._values = array("f")
        self._ranks = array("i")

    def __bool__(self) -> bool:
        return self._width > 0

    def add(self, more: Logprobs | None) -> None:
        """Append those of further tokens."""
        if more is not None:
            self._width = more.width
            self._ids.frombytes(more.ids)
            self._values.frombytes(more.values)
            self._ranks.frombytes(more.ranks)

    def cut(self, count: int) -> None:
        """Keep those of the first `count` tokens."""
        del self._ranks[count:], self._ids[count * self._width :], self._values[count * self._width :]

    def unpack(self, texts: TokenTexts, *, ranked: bool = True) -> SampleLogprobs:
        """Return a dict for each token; `ranked`: the others are the best ones, in order."""
        words = dict(zip(set(self._ids), texts(list(set(self._ids))), strict=True)) if self._ids else {}
        rows = []
        for row, rank in enumerate(self._ranks):
            found: dict[int, Logprob] = {}
            for place in range(self._width):
                token = self._ids[row * self._width + place]
                of = rank if place == 0 else place if ranked else None
                found.setdefault(token, Logprob(self._values[row * self._width + place], of, words[token]))
            rows.append(found)
        return rows
