"""What an engine has said and its frontend has not been sent yet. Never larger than what is open: it merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from octavo.engine_core.news import join
from octavo.wire.codec import CORE
from octavo.wire.frontend import Deltas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from octavo.wire.frontend import (
        ControlDone,
        Delta,
        EngineFault,
        EngineReady,
        Goodbye,
        Logprobs,
        RequestRejected,
        Stats,
    )

__all__ = ["Outbox"]


class _Waiting:
    """Deltas of one request, merged. A bytearray, so that many steps cost no more than their tokens."""

    __slots__ = ("_delta", "_logprobs", "_tokens")

    def __init__(self, delta: Delta) -> None:
        self._delta = delta  # all but the tokens and their log probabilities
        self._tokens = bytearray(delta.tokens)  # int32 [n]
        self._logprobs: list[Logprobs] = [delta.logprobs] if delta.logprobs else []

    def add(self, delta: Delta) -> None:
        """Append a delta that starts where this ends; a later attempt replaces this, an earlier one is dropped."""
        if delta.attempt != self._delta.attempt:
            if delta.attempt > self._delta.attempt:
                self._delta, self._tokens = delta, bytearray(delta.tokens)
                self._logprobs = [delta.logprobs] if delta.logprobs else []
            return
        self._tokens += delta.tokens
        if delta.logprobs is not None:
            self._logprobs.append(delta.logprobs)
        if delta.prompt_logprobs is not None:
            self._delta = msgspec.structs.replace(self._delta, prompt_logprobs=delta.prompt_logprobs)
        if delta.finish is not None or (self._delta.cached_tokens is None and delta.cached_tokens is not None):
            self._delta = msgspec.structs.replace(
                self._delta,
                finish=delta.finish or self._delta.finish,
                cached_tokens=delta.cached_tokens if self._delta.cached_tokens is None else self._delta.cached_tokens,
            )

    def merged(self) -> Delta:
        """Return one delta that says what all said."""
        if len(self._tokens) == len(self._delta.tokens):
            return self._delta
        return msgspec.structs.replace(self._delta, tokens=bytes(self._tokens), logprobs=join(self._logprobs))


class Outbox:
    """Holds what waits for a session or for credit, merged by request, and hands it out encoded.

    The engine's status is said first in every session; then rejections and answers, deltas, statistics; Goodbye last.
    """

    def __init__(self) -> None:
        self._status: EngineReady | EngineFault | None = None
        self._status_due = False
        self._answers: dict[tuple[str, int], RequestRejected | ControlDone] = {}
        self._step = 0
        self._deltas: dict[int, _Waiting] = {}
        self._stats: Stats | None = None
        self._goodbye: Goodbye | None = None

    def __len__(self) -> int:
        due = (self._status_due, self._stats is not None, self._goodbye is not None, bool(self._deltas))
        return sum(due) + len(self._answers)

    def begin(self) -> None:
        """Start a session: the status is said again. Older news is dropped, because its requests come again."""
        self._status_due = self._status is not None
        self._deltas.clear()
        self._answers.clear()

    def status(self, status: EngineReady | EngineFault) -> None:
        """Replace the engine's status."""
        self._status = status
        self._status_due = True

    def answer(self, answer: RequestRejected | ControlDone) -> None:
        """Add an answer; a later one to the same request or control replaces it."""
        self._answers[(type(answer).__name__, answer.id)] = answer

    def deltas(self, step: int, deltas: Sequence[Delta]) -> None:
        """Add what a step brought."""
        self._step = step
        for delta in deltas:
            waiting = self._deltas.get(delta.id)
            if waiting is None:
                self._deltas[delta.id] = _Waiting(delta)
            else:
                waiting.add(delta)

    def stats(self, stats: Stats) -> None:
        """Replace the statistics."""
        self._stats = stats

    def goodbye(self, goodbye: Goodbye) -> None:
        """Say goodbye when everything else is sent."""
        self._goodbye = goodbye

    def bodies(self) -> Iterator[bytes]:
        """Yield what waits, one body a time. What was yielded is forgotten when the next one is asked for."""
        if self._status_due and self._status is not None:
            yield CORE.encode(self._status)
            self._status_due = False
        while self._answers:
            key, answer = next(iter(self._answers.items()))
            yield CORE.encode(answer)
            del self._answers[key]
        if self._deltas:
            yield CORE.encode(Deltas(self._step, tuple(waiting.merged() for waiting in self._deltas.values())))
            self._deltas.clear()
        if self._stats is not None:
            yield CORE.encode(self._stats)
            self._stats = None
        if self._goodbye is not None:
            yield CORE.encode(self._goodbye)
            self._goodbye = None
