# mypy: disable-error-code="import-untyped, untyped-decorator"
"""The end of thoughts: where markers end among a row's tokens, then how much was thought and what must come next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options, power_of_two
from octavo.kernels.triton.table import device_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.kernels.logit_rows import Thinking

__all__ = ["end_thinking"]

_BLOCK = 1024
_FIELDS: tl.constexpr = tl.constexpr(12)
#: What ends at a token.
_START: tl.constexpr = tl.constexpr(1)
_CLOSE: tl.constexpr = tl.constexpr(2)
_END: tl.constexpr = tl.constexpr(4)


@triton.jit
def _ends_of(tokens: tl.tensor, at: tl.tensor, length: tl.tensor, line: tl.tensor) -> tl.tensor:  # [n] -> [n] bool
    """Return where the marker ends whose address and length are at `line`."""
    marker, size = tl.load(line).to(tl.pointer_type(tl.int64)), tl.load(line + 1).to(tl.int32)
    found = (at < length) & (at >= size - 1)
    for place in range(size):
        token = tl.load(tokens + at - (size - 1) + place, mask=(at < length) & (at >= size - 1), other=-1)
        found = found & (token.to(tl.int64) == tl.load(marker + place))
    return found


@triton.jit
def _find_kernel(
    tokens: tl.tensor,  # [S, L] int32
    table: tl.tensor,  # [n, fields] int64: row, slot, prompt, tokens, budget; each marker's address and length; place
    ends: tl.tensor,  # [all tokens] int8: what ends at each
    stride: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    line = table + tl.program_id(0) * _FIELDS
    mine, length = tokens + tl.load(line + 1) * stride, tl.load(line + 3).to(tl.int32)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    found = tl.where(_ends_of(mine, at, length, line + 5), _START, 0)
    found += tl.where(_ends_of(mine, at, length, line + 7), _CLOSE, 0)
    found += tl.where(_ends_of(mine, at, length, line + 9), _END, 0)
    tl.store(ends + tl.load(line + 11) + at, found.to(tl.int8), mask=at < length)


@triton.jit
def _event(ends: tl.tensor, at: tl.tensor, inside: tl.tensor) -> tl.tensor:  # [n] int32 -> [n] int32
    """Return a number that grows with the place: odd where a block begins behind it, even where one ends, else 0."""
    found = tl.load(ends + at, mask=inside, other=0).to(tl.int32)
    return tl.where((found & (_START | _CLOSE)) != 0, 2 * (at + 1) + ((found & _CLOSE) == 0).to(tl.int32), 0)


@triton.jit
def _later(one: tl.tensor, other: tl.tensor) -> tl.tensor:
    return tl.maximum(one, other)


@triton.jit
def _part_of(ends: tl.tensor, at: tl.tensor, length: tl.tensor, size: tl.tensor, WHICH: tl.constexpr) -> tl.tensor:
    """Return whether tokens are part of a marker of `size` tokens: one that ends there or soon after."""
    part = tl.zeros_like(at)
    for back in range(size):
        found = tl.load(ends + at + back, mask=at + back < length, other=0).to(tl.int32)
        part = part | (found & WHICH)
    return part != 0


@triton.jit
def _spent(ends: tl.tensor, prompt: tl.tensor, length: tl.tensor, line: tl.tensor, BLOCK: tl.constexpr) -> tl.tensor:
    """Return the tokens that were thought, of the blocks that count, and whether a block is open behind the last."""
    each = tl.arange(0, BLOCK)
    close, end = tl.load(line + 8).to(tl.int32), tl.load(line + 10).to(tl.int32)
    latest = tl.zeros((), tl.int32)
    for start in range(0, prompt, BLOCK):
        latest = tl.maximum(latest, tl.max(_event(ends, start + each, start + each < prompt), axis=0))
    # Blocks that the prompt has closed belong to earlier turns.
    begin_at = tl.where((latest & 1) != 0, latest >> 1, prompt)
    spent = tl.zeros((), tl.int32)
    before = tl.zeros((), tl.int32)
    for start in range(0, length, BLOCK):
        at = start + each
        event = _event(ends, at - 1, (at > 0) & (at <= length))  # of the token before
        within = tl.maximum(tl.associative_scan(event, 0, _later), before) & 1
        marker = _part_of(ends, at, length, close, _CLOSE) | _part_of(ends, at, length, end, _END)
        thought = (within != 0) & (at >= begin_at) & (at < length) & (marker.to(tl.int32) == 0)
        spent += tl.sum(thought.to(tl.int32), axis=0)
        before = tl.maximum(before, tl.max(tl.where(at <= length, event, 0), axis=0))
    last = tl.max(_event(ends, length - 1 + each, each < 1), axis=0)
    return spent, (tl.maximum(before, last) & 1) != 0


@triton.jit
def _force_kernel(
    logits: tl.tensor,  # [R, V] float32
    tokens: tl.tensor,  # [S, L] int32
    table: tl.tensor,  # [n, fields] int64
    ends: tl.tensor,  # [all tokens] int8
    stride: tl.tensor,
    token_stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    SIZE: tl.constexpr,  # no `end` marker is longer
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    line = table + tl.program_id(0) * _FIELDS
    prompt, length = tl.load(line + 2).to(tl.int32), tl.load(line + 3).to(tl.int32)
    spent, opened = _spent(ends + tl.load(line + 11), prompt, length, line, BLOCK)
    if opened & (spent.to(tl.int64) >= tl.load(line + 4)):
        mine = tokens + tl.load(line + 1) * token_stride
        end, size = tl.load(line + 9).to(tl.pointer_type(tl.int64)), tl.load(line + 10).to(tl.int32)
        forced = tl.load(end)
        place = tl.arange(0, SIZE)
        wanted = tl.load(end + place, mask=place < size, other=-1)
        for have in range(1, tl.minimum(size, length + 1)):
            token = tl.load(mine + length - have + place, mask=place < have, other=-1).to(tl.int64)
            missed = tl.sum(((place < have) & (token != wanted)).to(tl.int32), axis=0)
            forced = tl.where(missed == 0, tl.load(end + have), forced)
        row = logits + tl.load(line) * stride
        for start in range(0, vocab, BLOCK):
            token = start + tl.arange(0, BLOCK)
            tl.store(row + token, tl.where(token == forced, 0.0, float("-inf")), mask=token < vocab)


def end_thinking(logits: Tensor, tokens: Tensor, thinking: Sequence[Thinking]) -> None:
    """Do what LogitsOps.end_thinking says: [R, V] float32, changed; [S, L] int32."""
    if not thinking:
        return
    lines, room = [], 0
    for one in thinking:
        said, markers = one.said, one.markers
        marked = [(part.data_ptr(), len(part)) for part in (markers.start, markers.close, markers.end)]
        where = (said.row, said.slot, said.prompt_len, said.length, one.budget)
        lines.append((*where, *marked[0], *marked[1], *marked[2], room))
        room += said.length
    table = device_table(lines, logits.device)
    ends = torch.empty(room, dtype=torch.int8, device=logits.device)
    options = launch_options(logits)
    longest = max(one.said.length for one in thinking)
    _find_kernel[(len(lines), triton.cdiv(longest, _BLOCK))](
        tokens, table, ends, tokens.stride(0), BLOCK=_BLOCK, **options
    )
    _force_kernel[(len(lines),)](
        logits,
        tokens,
        table,
        ends,
        logits.stride(0),
        tokens.stride(0),
        logits.shape[1],
        BLOCK=_BLOCK,
        SIZE=power_of_two(max(len(one.markers.end) for one in thinking)),
        **options,
    )
