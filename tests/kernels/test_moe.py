from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from octavo.kernels.ref.moe import RefMoe


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("taken", [1, 3])
def test_experts_are_summed_by_their_shares(tokens: int, taken: int) -> None:
    """Against a loop over tokens and their experts, in float64; some experts are taken by nobody."""
    generator = torch.Generator().manual_seed(taken)
    x = torch.randn(tokens, 8, generator=generator)
    gate_up, down = torch.randn(6, 10, 8, generator=generator), torch.randn(6, 8, 5, generator=generator)
    experts = torch.stack([torch.randperm(5, generator=generator)[:taken] for _ in range(tokens)] or [torch.zeros(0)])
    experts = experts.reshape(tokens, taken).long()
    shares = torch.rand(tokens, taken, generator=generator)
    got = RefMoe().apply(x, experts, shares, gate_up, down)
    assert got.shape == x.shape
    for token in range(tokens):
        want = torch.zeros(8, dtype=torch.float64)
        for expert, share in zip(experts[token].tolist(), shares[token].tolist(), strict=True):
            gate, up = (gate_up[expert].double() @ x[token].double()).chunk(2)
            want += share * (down[expert].double() @ (F.silu(gate) * up))
        torch.testing.assert_close(got[token].double(), want, atol=1e-5, rtol=1e-5)
