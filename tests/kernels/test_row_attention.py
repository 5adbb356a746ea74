"""Attention within whole rows, against the definition."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.ref.row_attention import RefRowAttention


def defined(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, counts: list[int], reach: int) -> torch.Tensor:
    """One token and head at a time.  # [T, N, D], three times -> [T, N, D]"""
    out, begin = torch.zeros_like(q), 0
    for count in counts:
        for token in range(begin, begin + count):
            first = max(begin, token - reach) if reach else begin
            last = min(begin + count, token + reach + 1) if reach else begin + count
            for head in range(q.shape[1]):
                scores = 0.3 * (k[first:last, head] @ q[token, head])
                out[token, head] = scores.softmax(0) @ v[first:last, head]
        begin += count
    return out


@pytest.mark.parametrize("reach", [0, 1, 4, 100])
@pytest.mark.parametrize("counts", [[7], [3, 3, 3], [1, 9, 4, 1, 9, 12]])
def test_it_is_softmax_over_the_row(counts: list[int], reach: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, sum(counts), 2, 8).unbind(0)
    seen = RefRowAttention().attend(q, k, v, counts, 0.3, reach)
    torch.testing.assert_close(seen, defined(q, k, v, counts, reach), rtol=1e-5, atol=1e-6)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 30, 2, 8).unbind(0)
    together = RefRowAttention().attend(q, k, v, [10, 10, 10], 0.3)
    for begin in (0, 10, 20):
        part = slice(begin, begin + 10)
        alone = RefRowAttention().attend(q[part], k[part], v[part], [10], 0.3)
        torch.testing.assert_close(together[part], alone, rtol=1e-5, atol=1e-6)
