"""One request of a user: a prompt and its outputs."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from octavo.llm.child import Child
from octavo.llm.outputs import CompletionOutput, RequestOutput
from octavo.wire.frontend import Grammar, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo_native import Prepared

    from octavo.llm.logprobs import TokenTexts

__all__ = ["Request"]

_params: msgspec.msgpack.Decoder[SamplingParams] = msgspec.msgpack.Decoder(SamplingParams)


class Request:
    """A prompt and its children, one for each output. For one thread at a time."""

    __slots__ = ("_texts", "children", "name", "prompt", "prompt_ids")

    def __init__(
        self, ids: Sequence[int], name: str, prompt: str | None, prepared: Prepared, texts: TokenTexts
    ) -> None:
        """`ids`: in the engine, at least one for each output. texts: what token ids stand for."""
        self.name = name
        self.prompt = prompt
        self.prompt_ids = prepared.prompt  # packed
        self._texts = texts
        single = prepared.n == 1
        self.children = [
            Child(
                ids[index],
                name if single else f"{name}-{index}",
                self.prompt_ids,
                _params.decode(prepared.sampling(index)),
                prepared.output(),
                None if prepared.grammar is None else Grammar(*prepared.grammar),
            )
            for index in range(prepared.n)
        ]

    @property
    def finished(self) -> bool:
        """Whether all outputs have ended."""
        return all(child.finish is not None for child in self.children)

    @property
    def error(self) -> str | None:
        """What happened to the first output that failed."""
        return next((child.error for child in self.children if child.error is not None), None)

    def output(self) -> RequestOutput:
        """Return what has come so far."""
        first = self.children[0]
        of_prompt = first.prompt_logprobs
        return RequestOutput(
            request_id=self.name,
            prompt=self.prompt,
            prompt_token_ids=array("i", self.prompt_ids).tolist(),
            outputs=[self._output(index, child) for index, child in enumerate(self.children)],
            finished=self.finished,
            num_cached_tokens=first.cached,
            prompt_logprobs=[None, *of_prompt.unpack(self._texts)] if of_prompt else None,
            error=self.error,
        )

    def _output(self, index: int, child: Child) -> CompletionOutput:
        extras = child.sampling.extras
        ranked = extras is None or not extras.logprob_token_ids
        return CompletionOutput(
            index=index,
            text=child.text(),
            token_ids=child.tokens.tolist(),
            logprobs=child.logprobs.unpack(self._texts, ranked=ranked) if child.logprobs else None,
            finish_reason=child.finish,
            stop_reason=child.stop_reason,
        )
