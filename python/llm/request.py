"""One request on its way: what it asks for, what has come of it."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from octavo.llm.outputs import CompletionOutput, RequestOutput
from octavo.wire.frontend import AddRequest, Grammar, RequestRejected, SamplingParams

if TYPE_CHECKING:
    from octavo_native import Prepared

    from octavo.engine_core.local import LocalEvent

__all__ = ["Request"]


class Request:
    """Collects the tokens and the text of one request. For one thread at a time.

    Token ids stay packed, 4 bytes each, until they are asked for: batches hold thousands of requests.
    """

    __slots__ = ("_cached", "_output", "_stop_reason", "_texts", "_tokens", "error", "finish", "grammar", "id", "name",
                 "prompt", "prompt_ids", "sampling")  # fmt: skip

    def __init__(self, id_: int, name: str, prompt: str | None, prepared: Prepared) -> None:
        self.id = id_
        self.name = name
        self.prompt = prompt
        self.prompt_ids = prepared.prompt  # packed
        seed, max_tokens, temperature, top_p, top_k, stop_ids = prepared.sampling
        self.sampling = SamplingParams(seed, max_tokens, temperature, top_p, top_k, tuple(stop_ids))
        self.grammar = None if prepared.grammar is None else Grammar(*prepared.grammar)
        self.finish: str | None = None
        self.error: str | None = None  # with "error": what happened
        self._output = prepared.output()
        self._tokens = array("i")
        self._texts: list[str] = []
        self._cached: int | None = None
        self._stop_reason: int | str | None = None

    def message(self) -> AddRequest:
        """Return what the engine is told; it arrives now."""
        now = time.time_ns() // 1000
        return AddRequest(self.id, 1, self.name, self.prompt_ids, b"", self.sampling, now, grammar=self.grammar)

    @property
    def num_prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.prompt_ids) // 4

    @property
    def num_tokens(self) -> int:
        """How many tokens have come."""
        return len(self._tokens)

    def advance(self, event: LocalEvent) -> bool:
        """Take what the engine says; return whether the engine must be told to stop, for a stop string has come.

        Events after the end are ignored.
        """
        if self.finish is not None:
            return False
        if isinstance(event, RequestRejected):
            self.finish, self.error = "error", event.message
            return False
        self._tokens.frombytes(event.tokens)
        if event.cached_tokens is not None:
            self._cached = event.cached_tokens
        finish = event.finish
        reason, stop_token = (None, None) if finish is None else (finish.reason, finish.stop_token)
        text, end = self._output.advance(event.tokens, reason, stop_token)
        if text:
            self._texts.append(text)
        if end is None:
            return False
        self.finish, self._stop_reason, count = end
        del self._tokens[count:]
        if self.finish == "error":
            self.error = (finish and finish.message) or "the engine failed on this request"
        return finish is None

    def output(self) -> RequestOutput:
        """Return what has come so far."""
        self._texts = ["".join(self._texts)]
        return RequestOutput(
            request_id=self.name,
            prompt=self.prompt,
            prompt_token_ids=array("i", self.prompt_ids).tolist(),
            outputs=[
                CompletionOutput(0, self._texts[0], self._tokens.tolist(), self.finish, self._stop_reason),
            ],
            finished=self.finish is not None,
            num_cached_tokens=self._cached,
            error=self.error,
        )
