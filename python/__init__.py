"""octavo: an inference and serving engine for large language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.llm import LLM, AsyncLLM, CompletionOutput, RequestOutput, SamplingParams

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "RequestOutput", "SamplingParams", "__version__"]

#: One version for all distributions; tests compare it with pyproject.toml and Cargo.toml.
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the library when it is first asked for: processes of the server need only the version."""
    if name in __all__:
        import octavo.llm

        return getattr(octavo.llm, name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
