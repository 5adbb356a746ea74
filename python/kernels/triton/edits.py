# mypy: disable-error-code="import-untyped, untyped-decorator"
"""What requests say of single tokens: allowed ids, biases, bans, words that must not be said; all rows in one launch.

What a row names lies in tensors of its own. A table of their addresses and lengths, one line for each row, is what a
launch brings along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options
from octavo.kernels.triton.table import device_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from octavo.kernels.logit_rows import BannedWords, Edits

__all__ = ["ban_words", "edit"]

_BLOCK, _WORDS = 1024, 128
_EDIT_FIELDS: tl.constexpr = tl.constexpr(9)
_WORD_FIELDS: tl.constexpr = tl.constexpr(7)


@triton.jit
def _edit_kernel(
    logits: tl.tensor,  # [R, V] float32
    table: tl.tensor,  # [n, fields] int64: row; allowed ids, their number, their place in `kept`; ids and biases, ...
    kept: tl.tensor,  # [m] float32: logits of allowed tokens, while all others are set
    stride: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    line = table + tl.program_id(0) * _EDIT_FIELDS
    row = logits + tl.load(line) * stride
    allowed, number = tl.load(line + 1).to(tl.pointer_type(tl.int64)), tl.load(line + 2)
    mine = kept + tl.load(line + 3)
    each = tl.arange(0, BLOCK)
    none = tl.full((BLOCK,), float("-inf"), tl.float32)
    if number > 0:
        for start in range(0, number, BLOCK):
            inside = start + each < number
            token = tl.load(allowed + start + each, mask=inside, other=0)
            tl.store(mine + start + each, tl.load(row + token, mask=inside), mask=inside)
        tl.debug_barrier()
        for start in range(0, vocab, BLOCK):
            tl.store(row + start + each, none, mask=start + each < vocab)
        tl.debug_barrier()
        for start in range(0, number, BLOCK):
            inside = start + each < number
            token = tl.load(allowed + start + each, mask=inside, other=0)
            tl.store(row + token, tl.load(mine + start + each, mask=inside), mask=inside)
        tl.debug_barrier()
    ids, biases = tl.load(line + 4).to(tl.pointer_type(tl.int64)), tl.load(line + 5).to(tl.pointer_type(tl.float32))
    number = tl.load(line + 6)
    for start in range(0, number, BLOCK):
        inside = start + each < number
        token = tl.load(ids + start + each, mask=inside, other=0)
        tl.atomic_add(row + token, tl.load(biases + start + each, mask=inside), mask=inside, sem="relaxed")
    tl.debug_barrier()
    banned, number = tl.load(line + 7).to(tl.pointer_type(tl.int64)), tl.load(line + 8)
    for start in range(0, number, BLOCK):
        inside = start + each < number
        tl.store(row + tl.load(banned + start + each, mask=inside, other=0), none, mask=inside)


def _address(tensor: Tensor | None) -> tuple[int, int]:
    return (0, 0) if tensor is None else (tensor.data_ptr(), len(tensor))


def edit(logits: Tensor, edits: Sequence[Edits]) -> None:  # [R, V] float32, changed
    """Do what LogitsOps.edit says."""
    if not edits:
        return
    lines, room = [], 0
    for one in edits:
        allowed, bias_ids, biases, banned = map(_address, (one.allowed, one.bias_ids, one.biases, one.banned))
        lines.append((one.row, *allowed, room, bias_ids[0], *biases, *banned))
        room += allowed[1]
    kept = torch.empty(room, dtype=torch.float32, device=logits.device)
    table = device_table(lines, logits.device)
    _edit_kernel[(len(lines),)](
        logits, table, kept, logits.stride(0), logits.shape[1], BLOCK=_BLOCK, **launch_options(logits)
    )


@triton.jit
def _ban_words_kernel(
    logits: tl.tensor,  # [R, V] float32
    tokens: tl.tensor,  # [S, L] int32
    table: tl.tensor,  # [n, fields] int64: row, slot, tokens of the prompt, tokens; words, their number, their length
    stride: tl.tensor,
    token_stride: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    line = table + tl.program_id(0) * _WORD_FIELDS
    said, prompt, length = tokens + tl.load(line + 1) * token_stride, tl.load(line + 2), tl.load(line + 3)
    words, count, width = tl.load(line + 4).to(tl.pointer_type(tl.int64)), tl.load(line + 5), tl.load(line + 6)
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    banned = word < count
    for place in range(width - 1):
        at = length - (width - 1) + place
        last = tl.load(said + at, mask=at >= prompt, other=-1).to(tl.int64)
        token = tl.load(words + word * width + place, mask=word < count, other=-2)
        banned = banned & ((token == last) | (token == -2))
    end = tl.load(words + word * width + width - 1, mask=word < count, other=0)
    row = logits + tl.load(line) * stride
    tl.store(row + end, tl.full((BLOCK,), float("-inf"), tl.float32), mask=banned)


def ban_words(logits: Tensor, tokens: Tensor, banned: Sequence[BannedWords]) -> None:
    """Do what LogitsOps.ban_words says: [R, V] float32, changed; [S, L] int32."""
    lines = []
    for one in banned:
        said, (count, width) = one.said, one.words.shape
        assert one.words.is_contiguous()
        lines.append((said.row, said.slot, said.prompt_len, said.length, one.words.data_ptr(), count, width))
    most = max((line[5] for line in lines), default=0)
    if most:
        _ban_words_kernel[(len(lines), triton.cdiv(most, _WORDS))](
            logits,
            tokens,
            device_table(lines, logits.device),
            logits.stride(0),
            tokens.stride(0),
            BLOCK=_WORDS,
            **launch_options(logits),
        )
