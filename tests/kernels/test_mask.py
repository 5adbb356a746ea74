"""Masks of tokens."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.ref.mask import RefMask


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masked_rows_keep_what_is_allowed_and_others_all(vocab: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(4, vocab, generator=generator).to(dtype)
    allowed = torch.rand(2, vocab, generator=generator) < 0.5
    words = torch.zeros(2, -(-vocab // 32), dtype=torch.int64)
    for row in range(2):
        for token in allowed[row].nonzero().flatten().tolist():
            words[row, token // 32] |= 1 << token % 32
    expected = logits.clone()
    expected[torch.tensor([3, 1])] = expected[torch.tensor([3, 1])].masked_fill(~allowed, float("-inf"))
    RefMask().apply_token_mask(logits, torch.tensor([3, 1]), words.to(torch.int32))
    assert torch.equal(logits, expected)
