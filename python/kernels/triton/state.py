# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Reads and writes of the slots' arrays: what lets a step's inputs come from the device alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.kernels.api import DecodeInputs

__all__ = ["TritonState"]

_BLOCK = 256


@triton.jit(do_not_specialize=["stride", "count"])
def _scatter_kernel(
    target: tl.tensor,  # [S, L] int32
    rows: tl.tensor,  # [n] int64
    columns: tl.tensor,  # [n] int64
    values: tl.tensor,  # [n] int32
    stride: tl.tensor,
    count: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    row = tl.load(rows + at, mask=inside, other=0)
    column = tl.load(columns + at, mask=inside, other=0)
    value = tl.load(values + at, mask=inside, other=0)
    tl.store(target + row * stride + column, value.to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["stride", "count"])
def _gather_kernel(
    tokens: tl.tensor,  # [S, L] int32
    slots: tl.tensor,  # [T] int64
    positions: tl.tensor,  # [T] int64
    out: tl.tensor,  # [T] int32
    stride: tl.tensor,
    count: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    slot = tl.load(slots + at, mask=inside, other=-1)
    position = tl.load(positions + at, mask=inside, other=-1)
    value = tl.load(tokens + slot * stride + position, mask=(slot >= 0) & (position >= 0), other=0)
    tl.store(out + at, value, mask=inside)


@triton.jit(do_not_specialize=["tokens_stride", "tables_stride", "step_stride"])
def _gather_decodes_kernel(
    tokens: tl.tensor,  # [S, L] int32
    lengths: tl.tensor,  # [S] int32: known tokens of each slot, the last one not yet computed
    tables: tl.tensor,  # [S, blocks] int32
    slots: tl.tensor,  # [R] int64; negative: padding
    ids: tl.tensor,  # [R] int32
    positions: tl.tensor,  # [R] int64
    places: tl.tensor,  # [R] int64
    nexts: tl.tensor,  # [R] int64
    step_lengths: tl.tensor,  # [R] int32
    step_tables: tl.tensor,  # [R, blocks] int32
    tokens_stride: tl.tensor,
    tables_stride: tl.tensor,
    step_stride: tl.tensor,
    block_tokens: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    row = tl.program_id(0)
    slot = tl.load(slots + row)
    present = slot >= 0
    length = tl.load(lengths + slot, mask=present, other=0)
    token = tl.load(tokens + slot * tokens_stride + length - 1, mask=length > 0, other=0)
    tl.store(ids + row, token)
    tl.store(positions + row, (length - 1).to(tl.int64))  # -1 for padding
    tl.store(places + row, tl.maximum(length - 1, 0).to(tl.int64))
    tl.store(nexts + row, length.to(tl.int64))
    tl.store(step_lengths + row, length)
    used = tl.cdiv(length, block_tokens)
    for start in range(0, used, BLOCK):
        at = start + tl.arange(0, BLOCK)
        block = tl.load(tables + slot * tables_stride + at, mask=at < used, other=0)
        tl.store(step_tables + row * step_stride + at, block, mask=at < used)


@triton.jit(do_not_specialize=["stride", "count"])
def _append_kernel(
    tokens: tl.tensor,  # [S, L] int32
    lengths: tl.tensor,  # [S] int32
    slots: tl.tensor,  # [R] int64; negative: padding
    sampled: tl.tensor,  # [R] int64
    stride: tl.tensor,
    count: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + at, mask=at < count, other=-1)
    present = slot >= 0
    length = tl.load(lengths + slot, mask=present, other=0)
    token = tl.load(sampled + at, mask=present, other=0)
    tl.store(tokens + slot * stride + length, token.to(tl.int32), mask=present)
    tl.store(lengths + slot, length + 1, mask=present)


class TritonState:
    """StateOps in Triton, and the two ops that a replayed decode step begins and ends with."""

    def scatter(self, target: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        count = values.shape[0]
        if count:
            _scatter_kernel[(triton.cdiv(count, _BLOCK),)](
                target, rows, columns, values, target.stride(0), count, BLOCK=_BLOCK, **launch_options(target)
            )

    def gather_ids(self, tokens: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """As in the protocol; 0 where the slot or the position is negative (padding)."""
        count = slots.shape[0]
        out = torch.empty(count, dtype=tokens.dtype, device=tokens.device)
        if count:
            _gather_kernel[(triton.cdiv(count, _BLOCK),)](
                tokens, slots, positions, out, tokens.stride(0), count, BLOCK=_BLOCK, **launch_options(tokens)
            )
        return out

    def gather_decodes(
        self,
        tokens: Tensor,  # [S, L] int32
        lengths: Tensor,  # [S] int32: known tokens of each slot, the last one not yet computed
        tables: Tensor,  # [S, blocks] int32
        slots: Tensor,  # [R] int64; negative: padding
        out: DecodeInputs,  # written; tables as far as a row's tokens go
        block_tokens: int,
    ) -> None:
        """Write the inputs of a decode step into its fixed tensors: one launch at the head of a CUDA graph."""
        if not slots.shape[0]:
            return
        _gather_decodes_kernel[(slots.shape[0],)](
            tokens,
            lengths,
            tables,
            slots,
            out.ids,
            out.positions,
            out.places,
            out.nexts,
            out.lengths,
            out.tables,
            tokens.stride(0),
            tables.stride(0),
            out.tables.stride(0),
            block_tokens,
            BLOCK=_BLOCK,
            num_warps=2,
            **launch_options(tokens),
        )

    def append(self, tokens: Tensor, lengths: Tensor, slots: Tensor, sampled: Tensor) -> None:
        """Set tokens[slots[i], lengths[slots[i]]] = sampled[i] and count it.  # [S, L] int32, [S] int32, [R], [R] int64

        Slots are distinct or negative (padding). What a finished request still draws must fit into its slot.
        """
        count = slots.shape[0]
        if count:
            _append_kernel[(triton.cdiv(count, _BLOCK),)](
                tokens, lengths, slots, sampled, tokens.stride(0), count, BLOCK=_BLOCK, **launch_options(tokens)
            )
