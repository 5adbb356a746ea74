"""octavo: an inference and serving engine for large language models."""

from __future__ import annotations

__all__ = ["__version__"]

#: One version for all distributions; tests compare it with pyproject.toml and Cargo.toml.
__version__ = "0.1.0"
