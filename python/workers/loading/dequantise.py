"""Weights out of GGUF blocks. The common kinds are unpacked here, in torch; the others by the `gguf` package.

Block layouts: github.com/ggml-org/ggml, src/ggml-common.h and ggml-quants.c. `d` and `m` are fp16 scales and minima; a
weight is d q, or d q + m. K kinds have 256 weights a block, in sub-blocks of 16 or 32 that have scales of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from octavo.modelfiles.gguf_reader import GGML_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["BLOCKS", "dequantise"]

#: Kind -> (elements in a block, bytes of a block).
BLOCKS = {name: (block, size) for name, block, size in GGML_TYPES.values()}

#: Weights that are unpacked at once, so that what is in between stays in the processor's cache.
_CACHED = 1 << 16

_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantise(data: np.ndarray[Any, np.dtype[np.uint8]], kind: str) -> Tensor:  # [rows, bytes] uint8 -> [rows, n]
    """Return the weights: float32, or the file's own dtype where it is a plain one."""
    if kind not in _PLAIN and kind not in _UNPACK:
        # Costs a second to import, and is wanted for few files.
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        return torch.from_numpy(dequantize(np.ascontiguousarray(data), GGMLQuantizationType[kind]))
    # A copy: the mapped file is not writable, which torch would warn of.
    raw = torch.from_numpy(np.array(data, copy=True, order="C"))
    if kind in _PLAIN:
        return raw.view(_PLAIN[kind])
    block, size = BLOCKS[kind]
    blocks = raw.view(-1, size)
    out = torch.empty(len(blocks), block)
    step = _CACHED // block
    for at in range(0, len(blocks), step):
        out[at : at + step] = _UNPACK[kind](blocks[at : at + step]).view(-1, block)
    return out.view(raw.shape[0], -1)


def _half(blocks: Tensor, at: int) -> Tensor:  # [blocks, bytes] uint8 -> [blocks, 1] float32
    return blocks[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: Tensor) -> Tensor:  # [..., n] uint8 -> [..., 2n] uint8: all low halves, then all high ones
    return torch.cat((packed & 15, packed >> 4), dim=-1)


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:  # [blocks, bytes] uint8 -> [blocks, 32] uint8: 0 or 16
    bits = blocks[:, at : at + 4].unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8)
    return (bits & 1).flatten(1) << 4


def _q4_0(blocks: Tensor) -> Tensor:  # [blocks, 18] uint8 -> [blocks, 32] float32
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).to(torch.float32) - 8)


def _q4_1(blocks: Tensor) -> Tensor:  # [blocks, 20] uint8 -> [blocks, 32] float32
    return (_half(blocks, 0) * _nibbles(blocks[:, 4:]).to(torch.float32)).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:  # [blocks, 22] uint8 -> [blocks, 32] float32
    quants = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (quants.to(torch.float32) - 16)


def _q5_1(blocks: Tensor) -> Tensor:  # [blocks, 24] uint8 -> [blocks, 32] float32
    quants = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return (_half(blocks, 0) * quants.to(torch.float32)).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor) -> Tensor:  # [blocks, 34] uint8 -> [blocks, 32] float32
    return _half(blocks, 0) * blocks[:, 2:].view(torch.int8).to(torch.float32)


def _pairs(packed: Tensor) -> Tensor:  # [blocks, 64] uint8 -> [blocks, 2, 4, 32] uint8: 2-bit numbers
    """Two halves of 32 bytes; each holds four runs of 32 numbers, the first in the lowest bits."""
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    return (packed.view(-1, 2, 1, 32) >> shifts) & 3


def _q2_k(blocks: Tensor) -> Tensor:  # [blocks, 84] uint8: 16 scales and minima, 64 quants, d, m
    scales, quants = blocks[:, :16], _pairs(blocks[:, 16:80].contiguous())
    step = _half(blocks, 80) * (scales & 15).to(torch.float32)
    least = _half(blocks, 82) * (scales >> 4).to(torch.float32)
    return step.unsqueeze(-1) * quants.reshape(-1, 16, 16).to(torch.float32) - least.unsqueeze(-1)


def _q3_k(blocks: Tensor) -> Tensor:  # [blocks, 110] uint8: 32 high bits, 64 quants, 12 scales, d
    low = _nibbles(blocks[:, 96:104])  # [blocks, 16]
    high = (blocks[:, 104:108].unsqueeze(1) >> torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 4, 1)) & 3
    scales = (low | (high.flatten(1) << 4)).to(torch.float32) - 32
    bits = torch.arange(8, dtype=torch.uint8).view(1, 2, 4, 1)
    absent = ((blocks[:, :32].view(-1, 1, 1, 32) >> bits) & 1) ^ 1
    quants = _pairs(blocks[:, 32:96].contiguous()).to(torch.float32) - 4 * absent.to(torch.float32)
    return (_half(blocks, 108) * scales).unsqueeze(-1) * quants.reshape(-1, 16, 16)


def _k_scales(packed: Tensor) -> tuple[Tensor, Tensor]:  # [blocks, 12] uint8 -> [blocks, 8] float32, twice
    """Return the 6-bit scales and minima of Q4_K and Q5_K."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat((first & 63, (third & 15) | ((first >> 6) << 4)), dim=-1)
    minima = torch.cat((second & 63, (third >> 4) | ((second >> 6) << 4)), dim=-1)
    return scales.to(torch.float32), minima.to(torch.float32)


def _k_weights(blocks: Tensor, quants: Tensor) -> Tensor:  # [blocks, bytes], [blocks, 8, 32] uint8 -> float32
    scales, minima = _k_scales(blocks[:, 4:16])
    step, least = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return step.unsqueeze(-1) * quants.to(torch.float32) - least.unsqueeze(-1)


def _q4_k(blocks: Tensor) -> Tensor:  # [blocks, 144] uint8: d, m, 12 scales, 128 quants
    return _k_weights(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).view(-1, 8, 32))


def _q5_k(blocks: Tensor) -> Tensor:  # [blocks, 176] uint8: d, m, 12 scales, 32 high bits, 128 quants
    high = (blocks[:, 16:48].unsqueeze(1) >> torch.arange(8, dtype=torch.uint8).view(1, 8, 1)) & 1
    return _k_weights(blocks, _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).view(-1, 8, 32) | (high << 4))


def _q6_k(blocks: Tensor) -> Tensor:  # [blocks, 210] uint8: 128 low bits, 64 high bits, 16 scales, d
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).view(-1, 2, 4, 32)
    quants = low | (_pairs(blocks[:, 128:192].contiguous()) << 4)
    scales = blocks[:, 192:208].contiguous().view(torch.int8).to(torch.float32)
    step = (_half(blocks, 208) * scales).unsqueeze(-1)
    return step * (quants.reshape(-1, 16, 16).to(torch.float32) - 32)


_UNPACK: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
