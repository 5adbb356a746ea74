"""Steps that nobody asked for: the largest one, to see what it takes, and small ones, so that none compiles later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octavo.wire.frontend import SamplingParams
from octavo.wire.worker import BlockDiff, NewRow, StepPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BLOCK_TOKENS", "blocks_needed", "largest_step", "small_steps"]

BLOCK_TOKENS = 16
#: A prompt that is cut before its end, so that its last tokens attend to a long prefix.
_LONG, _CUT = 700, 600
_GREEDY = SamplingParams(0, 8, 0.0, 1.0, 0)
_DRAWN = SamplingParams(0, 8, 1.0, 1.0, 0)
_LIMITED = SamplingParams(0, 8, 1.0, 0.9, 50)


def _prompts(tokens: int, rows: int, context: int) -> list[int]:
    counts: list[int] = []
    while tokens > 0 and len(counts) < rows:
        counts.append(min(tokens, context - 1))
        tokens -= counts[-1]
    return counts


def blocks_needed(tokens: int, rows: int, context: int) -> int:
    """Return the blocks that the steps below need, the null block included."""
    return max(_blocks(_prompts(tokens, rows, context)), _blocks([200, 10, _LONG])) + 2


def _blocks(counts: Sequence[int]) -> int:
    return sum(-(-(count + 8) // BLOCK_TOKENS) for count in counts)


def largest_step(tokens: int, rows: int, context: int) -> StepPlan:
    """Return a step of `tokens` tokens in as few prompts as can be: fewer, if `rows` prompts do not have so many."""
    counts = _prompts(tokens, rows, context)
    new = [(slot, count, _DRAWN) for slot, count in enumerate(counts)]
    return _plan(1, [], new, [(slot, count, True) for slot, count in enumerate(counts)])


def small_steps(tokens: int, rows: int, context: int) -> Iterator[StepPlan]:
    """Yield steps that use what the largest does not: short rows, prefixes, decode rows, every way to draw.

    They follow the largest step. None, where the limits do not leave room for them.
    """
    taken = len(_prompts(tokens, rows, context))
    if tokens < _CUT or rows < 3 or context <= _LONG + 8:
        return
    yield _plan(2, range(taken), [(0, 200, _GREEDY)], [(0, 200, True)])
    yield _plan(3, [], [(1, 10, _LIMITED)], [(0, 1, True), (1, 10, True)], first_block=15)
    yield _plan(4, [], [(2, _LONG, _DRAWN)], [(0, 1, True), (1, 1, True), (2, _CUT - 2, False)], first_block=17)
    yield _plan(5, [], [], [(2, _LONG - _CUT + 2, True)])


def _plan(
    step: int,
    released: Sequence[int],
    new: Sequence[tuple[int, int, SamplingParams]],  # slot, tokens of the prompt
    rows: Sequence[tuple[int, int, bool]],  # slot, tokens of this step, whether it draws
    first_block: int = 1,
) -> StepPlan:
    taken, diffs = [], []
    for slot, count, sampling in new:
        taken.append(NewRow(slot, 0, np.zeros(count, dtype="<i4").tobytes(), count, 0, sampling))
        used = _blocks([count]) if step > 1 else -(-count // BLOCK_TOKENS)  # the largest step is the last of its rows
        diffs.append(BlockDiff(0, slot, 0, np.arange(first_block, first_block + used, dtype="<i4").tobytes()))
        first_block += used
    return StepPlan(
        step=step,
        new=tuple(taken),
        released=np.asarray(released, dtype="<i4").tobytes(),
        blocks=tuple(diffs),
        rows=np.asarray([slot for slot, _, _ in rows], dtype="<i4").tobytes(),
        counts=np.asarray([count for _, count, _ in rows], dtype="<i4").tobytes(),
        samples=bytes([draws for _, _, draws in rows]),
    )
