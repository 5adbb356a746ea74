"""Grammars in Rust: llguidance behind octavo_native, the code with which the frontend has validated them."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, cast

import octavo_native

from octavo.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.engine_core.grammar.protocol import CompiledGrammar, Grammars, Matcher
    from octavo.wire.frontend import Grammar

__all__ = ["NativeGrammars"]


class _Matcher:
    def __init__(self, matcher: octavo_native.Matcher) -> None:
        self.inner = matcher

    def accept(self, token: int) -> bool:
        try:
            return self.inner.accept(token)
        except octavo_native.GrammarError as error:
            raise RequestError(f"structured output: {error}") from None


class _Compiled:
    def __init__(self, grammar: octavo_native.Grammar) -> None:
        self._grammar = grammar

    def start(self) -> Matcher:
        return _Matcher(self._grammar.matcher())


class NativeGrammars:
    """Implements `Grammars` for the tokenizer in a folder. The vocabulary is read when the first grammar comes."""

    def __init__(self, tokenizer_dir: str, vocab_size: int) -> None:
        """`vocab_size` is the width of the logits."""
        self._folder = tokenizer_dir
        self._vocab_size = vocab_size
        self._lock = Lock()
        self._vocabulary: octavo_native.Vocabulary | None = None

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        with self._lock:
            if self._vocabulary is None:
                try:
                    self._vocabulary = octavo_native.Vocabulary(self._folder, self._vocab_size)
                except ValueError as error:
                    raise RequestError(f"structured output is not possible with this model: {error}") from error
        try:
            return _Compiled(self._vocabulary.compile(grammar.kind, grammar.text))
        except octavo_native.GrammarError as error:
            raise RequestError(f"structured output: {error}") from None

    def masks(self, matchers: Sequence[Matcher]) -> tuple[bytes, list[str | None]]:
        inner = [cast("_Matcher", matcher).inner for matcher in matchers]
        return octavo_native.fill_masks(inner, self._vocab_size)


def _conforms(grammars: NativeGrammars) -> Grammars:
    return grammars
