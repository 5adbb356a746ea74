"""One output of a request on its way: what it asks for, what has come of it."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from octavo.llm.logprobs import Collected
from octavo.wire.frontend import AddRequest, Grammar, RequestRejected, SamplingParams

if TYPE_CHECKING:
    from octavo_native import OutputText

    from octavo.engine_core.local import LocalEvent

__all__ = ["Child"]


class Child:
    """Collects the tokens and the text of one output. For one thread at a time.

    Token ids stay packed, 4 bytes each, until they are asked for: batches hold thousands of requests.
    """

    __slots__ = (
        "_output",
        "_prompt_ids",
        "cached",
        "error",
        "finish",
        "grammar",
        "id",
        "logprobs",
        "name",
        "prompt_logprobs",
        "sampling",
        "stop_reason",
        "texts",
        "tokens",
    )

    def __init__(
        self,
        id_: int,
        name: str,
        prompt_ids: bytes,
        sampling: SamplingParams,
        output: OutputText,
        grammar: Grammar | None = None,
    ) -> None:
        self.id = id_
        self.name = name
        self.sampling = sampling
        self.grammar = grammar
        self.finish: str | None = None
        self.error: str | None = None  # with "error": what happened
        self.stop_reason: int | str | None = None
        self.tokens = array("i")
        self.texts: list[str] = []
        self.cached: int | None = None
        self.logprobs = Collected()
        self.prompt_logprobs = Collected()
        self._prompt_ids = prompt_ids
        self._output = output

    def message(self) -> AddRequest:
        """Return what the engine is told; it arrives now."""
        now = time.time_ns() // 1000
        return AddRequest(self.id, 1, self.name, self._prompt_ids, b"", self.sampling, now, grammar=self.grammar)

    @property
    def num_prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self._prompt_ids) // 4

    @property
    def num_tokens(self) -> int:
        """How many tokens have come."""
        return len(self.tokens)

    def advance(self, event: LocalEvent) -> bool:
        """Take what the engine says; return whether the engine must be told to stop, for a stop string has come.

        Events after the end are ignored.
        """
        if self.finish is not None:
            return False
        if isinstance(event, RequestRejected):
            self.finish, self.error = "error", event.message
            return False
        self.tokens.frombytes(event.tokens)
        self.logprobs.add(event.logprobs)
        self.prompt_logprobs.add(event.prompt_logprobs)
        if event.cached_tokens is not None:
            self.cached = event.cached_tokens
        finish = event.finish
        reason, stop_token = (None, None) if finish is None else (finish.reason, finish.stop_token)
        text, end = self._output.advance(event.tokens, reason, stop_token)
        if text:
            self.texts.append(text)
        if end is None:
            return False
        self.finish, self.stop_reason, count = end
        del self.tokens[count:]
        self.logprobs.cut(count)
        if self.finish == "error":
            self.error = (finish and finish.message) or "the engine failed on this request"
        return finish is None

    def text(self) -> str:
        """Return the text so far."""
        self.texts = ["".join(self.texts)]
        return self.texts[0]
