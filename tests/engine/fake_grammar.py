"""Grammars in a few lines of Python, over the FakeWorker's vocabulary.

"step,least,most": tokens go by residues: the next one's, modulo `step`, is fixed by all tokens before it. From `least`
tokens on the output may end with the token END; after `most` it is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine_core.grammar.protocol import CompiledGrammar, Grammars, Matcher
    from octavo.wire.frontend import Grammar

__all__ = ["END", "VOCAB", "FakeGrammars", "FakeMatcher"]

VOCAB = 1000
END = VOCAB - 1


class FakeMatcher:
    """Implements `Matcher`."""

    def __init__(self, step: int, least: int, most: int) -> None:
        self._step, self._least, self._most = step, least, most
        self._state = self.count = 0

    @classmethod
    def of(cls, grammar: Grammar) -> FakeMatcher:
        """Read a grammar. Raises RequestError."""
        try:
            step, least, most = (int(part) for part in grammar.text.split(","))
        except ValueError:
            raise RequestError(f"structured output: {grammar.text!r} is no grammar") from None
        return cls(step, least, most)

    def allowed(self) -> list[int]:
        """Return the tokens that may come next."""
        tokens = [token for token in range(END) if token % self._step == self._state]
        return [*tokens, END] if self.count >= self._least else tokens

    def accept(self, token: int) -> bool:
        """See Matcher."""
        fits = token % self._step == self._state if token != END else self.count >= self._least
        if not fits:
            raise RequestError(f"structured output: {token} is not allowed after {self.count} tokens")
        self.count += 1
        self._state = (self._state * 31 + token + 1) % self._step
        return token == END or self.count == self._most

    def mask(self) -> bytes:
        """Return the mask, as in SamplePlan."""
        return sum(1 << token for token in self.allowed()).to_bytes(4 * -(-VOCAB // 32), "little")


class _Compiled:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        FakeMatcher.of(grammar)

    def start(self) -> Matcher:
        return FakeMatcher.of(self._grammar)


class FakeGrammars:
    """Implements `Grammars`. With `fail_at`, masks of outputs with so many tokens cannot be computed."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at = fail_at
        self.compiled: list[str] = []

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """See Grammars."""
        self.compiled.append(grammar.text)
        return _Compiled(grammar)

    def masks(self, matchers: Sequence[Matcher]) -> tuple[bytes, list[str | None]]:
        """See Grammars."""
        fakes = [matcher for matcher in matchers if isinstance(matcher, FakeMatcher)]
        errors = ["too complex" if fake.count == self.fail_at else None for fake in fakes]
        return b"".join(fake.mask() for fake in fakes), list(errors)


def _conforms(grammars: FakeGrammars) -> Grammars:
    return grammars
