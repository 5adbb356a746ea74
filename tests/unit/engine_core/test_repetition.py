"""Patterns at the end of an output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.engine_core.repetition import turns_in_circles
from octavo.wire.frontend import RepetitionDetection


def brute(tokens: list[int], begin: int, rule: RepetitionDetection) -> bool:
    output = tokens[begin:]
    return any(
        len(output) >= size * rule.min_count and output[-size * rule.min_count :] == output[-size:] * rule.min_count
        for size in range(rule.min_pattern_size, rule.max_pattern_size + 1)
    )


@given(
    st.lists(st.integers(0, 2), max_size=20),
    st.integers(0, 5),
    st.builds(RepetitionDetection, st.integers(1, 6), st.integers(1, 3), st.integers(2, 4)),
)
def test_equals_brute_force(tokens: list[int], begin: int, rule: RepetitionDetection) -> None:
    assert turns_in_circles(tokens, min(begin, len(tokens)), rule) == brute(tokens, min(begin, len(tokens)), rule)
