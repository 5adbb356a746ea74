"""Outputs that turn in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.wire.frontend import RepetitionDetection

__all__ = ["turns_in_circles"]


def turns_in_circles(tokens: Sequence[int], begin: int, rule: RepetitionDetection) -> bool:
    """Whether the tokens from `begin` on end with one pattern that stands there `min_count` times in a row.

    Patterns of min_pattern_size to max_pattern_size tokens are looked for.
    """
    count, end = rule.min_count, len(tokens)
    for size in range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1):
        first = end - size * count
        if first < begin:
            return False
        # The last tokens differ nearly always, and then nothing is copied.
        if tokens[end - 1] == tokens[end - 1 - size] and tokens[first + size : end] == tokens[first : end - size]:
            return True
    return False
