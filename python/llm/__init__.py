"""octavo as a library: the engine core and the workers of the server, without HTTP. `from octavo import LLM`."""

from __future__ import annotations

from octavo.llm.async_llm import AsyncLLM
from octavo.llm.llm import LLM
from octavo.llm.logprobs import Logprob
from octavo.llm.outputs import CompletionOutput, RequestOutput
from octavo.llm.sampling import RepetitionDetectionParams, SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "Logprob",
    "RepetitionDetectionParams",
    "RequestOutput",
    "SamplingParams",
]
