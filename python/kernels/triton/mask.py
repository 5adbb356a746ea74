# mypy: disable-error-code="import-untyped, untyped-decorator"
"""Grammar masks: one bit a token, one launch for all masked rows, in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from octavo.kernels.triton.common import begin, launch_options

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TritonMask"]

_BLOCK = 2048


@triton.jit(do_not_specialize=["words"])
def _mask_kernel(
    logits: tl.tensor,  # [R, V]
    rows: tl.tensor,  # [M] int64
    masks: tl.tensor,  # [M, words] int32
    stride: tl.tensor,
    words: tl.tensor,
    vocab: tl.tensor,
    BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
) -> None:
    begin(DEPENDENT)
    index = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + index)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab
    word = tl.load(masks + index * words + token // 32, mask=inside, other=-1)
    allowed = (word >> (token % 32)) & 1
    banned = tl.full((BLOCK,), float("-inf"), tl.float32).to(logits.dtype.element_ty)
    tl.store(logits + row * stride + token, banned, mask=inside & (allowed == 0))


class TritonMask:
    """MaskOps in Triton."""

    def apply_token_mask(
        self, logits: Tensor, rows: Tensor, masks: Tensor
    ) -> None:  # [R, V] dtype, [M] int64, [M, W] int32
        vocab = logits.shape[1]
        if not rows.shape[0]:
            return
        _mask_kernel[(rows.shape[0], triton.cdiv(vocab, _BLOCK))](
            logits,
            rows,
            masks.contiguous(),
            logits.stride(0),
            masks.shape[1],
            vocab,
            BLOCK=_BLOCK,
            num_warps=4,
            **launch_options(logits),
        )
