"""What the engine core needs of grammars. `NativeGrammars` is the real one; tests have one in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.wire.frontend import Grammar

__all__ = ["CompiledGrammar", "Grammars", "Matcher"]


class Matcher(Protocol):
    """Where one output stands in its grammar: a function of its tokens so far, and of nothing else."""

    def accept(self, token: int) -> bool:
        """Take the next token. Returns whether the output is complete: nothing may follow.

        Raises RequestError for a token that is not allowed here, and when a limit is hit.
        """
        ...


class CompiledGrammar(Protocol):
    """A grammar that outputs can start from."""

    def start(self) -> Matcher:
        """Return a matcher at the beginning of an output."""
        ...


class Grammars(Protocol):
    """Compiles grammars for one vocabulary and computes their masks."""

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Compile; called in threads, takes microseconds to seconds. Raises RequestError."""
        ...

    def masks(self, matchers: Sequence[Matcher]) -> tuple[bytes, list[str | None]]:
        """Return the masks of matchers, joined and packed as in SamplePlan, and what went wrong with each."""
        ...
