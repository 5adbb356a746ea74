"""Rotation, norm and write in one kernel, against the reference's separate ops: equal to the bit, padding untouched."""

from __future__ import annotations

import itertools

import pytest
import torch

from octavo.kernels.api import QkNorm
from octavo.kernels.ref.attention import RefAttention
from octavo.kernels.ref.norm import RefNorm
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.rotary import rotate_and_write
from octavo.kernels.triton.step import DeviceStep, device_step
from tests.kernels.triton.paged import NAN, NOWHERE, make_case

ROWS = [(3, 1), (31, 1), (0, 20), (17, 3)]


def bits_or_ulp(actual: torch.Tensor, wanted: torch.Tensor, exact: bool) -> None:
    """NaN must meet NaN: the poison of places that were not written. Norms sum in another order: an ulp is allowed."""
    assert torch.equal(actual.isnan(), wanted.isnan())
    actual, wanted = actual.nan_to_num().float(), wanted.nan_to_num().float()
    if exact:
        assert torch.equal(actual, wanted)
    else:
        assert torch.allclose(actual, wanted, rtol=2**-6, atol=2**-7)
        assert float((actual != wanted).float().mean()) < 0.05


@pytest.mark.parametrize(
    ("dtype", "norm", "turn"),
    [
        *itertools.product((torch.float32, torch.bfloat16), (None, "narrow", "wide"), (None,)),
        *itertools.product((torch.bfloat16,), (None, "wide"), (torch.float32,)),
    ],
)
@pytest.mark.parametrize("shape", [(2, 4, 64, 16), (3, 3, 16, 8), (1, 9, 80, 32)])
def test_equals_the_separate_ops(shape, dtype, norm, turn, device) -> None:
    heads, group, dim, block_tokens = shape
    case = make_case(ROWS, heads, group, dim, block_tokens, dtype, device)
    cos, sin = (part.to(turn or dtype) for part in (case.cos, case.sin))
    want_cache = type(case.cache)(case.cache.k.clone(), case.cache.v.clone())
    q, k, qk = case.q, case.k, None
    if norm:
        kind = torch.float32 if norm == "wide" else dtype
        qk = QkNorm(*(torch.randn(dim).to(kind).to(device) for _ in range(2)), 1e-6)
        q, k = RefNorm().rms_norm(q, qk.q, qk.eps), RefNorm().rms_norm(k, qk.k, qk.eps)
    want = RefAttention().prepare(case.step, heads).rotate_and_write(q, k, case.v, cos, sin, want_cache)
    prepared = TritonAttention().prepare(case.step, heads)
    got = prepared.rotate_and_write(case.q, case.k, case.v, cos, sin, case.cache, norm=qk)
    if dtype == torch.float32:  # fused multiply-add
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-5)
        assert torch.allclose(case.cache.k, want_cache.k, rtol=1e-5, atol=1e-5, equal_nan=True)
    else:
        bits_or_ulp(got, want, exact=not norm)
        bits_or_ulp(case.cache.k, want_cache.k, exact=not norm)
    bits_or_ulp(case.cache.v, want_cache.v, exact=True)


def test_keeps_the_rotated_keys_on_request(device) -> None:
    case = make_case(ROWS, 2, 2, 32, 16, torch.bfloat16, device)
    step = device_step(case.step)
    rotate_and_write(case.q, case.k, case.v, case.cos, case.sin, case.cache, step, None, keep_k=True)
    block = case.step.tables[case.step.rows, case.step.positions // 16].long()
    assert torch.equal(case.cache.k[block, :, case.step.positions % 16], case.k)


def test_padding_writes_nothing(device) -> None:
    case = make_case([(3, 1), (31, 1)], 2, 2, 32, 16, torch.bfloat16, device)
    tokens = 5
    nan = torch.full((tokens, 8, 32), NAN, dtype=torch.bfloat16, device=device)
    qkv = torch.cat((torch.cat((case.q, case.k, case.v), dim=1), nan))
    rope = torch.full((tokens, 32), NAN, dtype=torch.bfloat16, device=device)
    minus = torch.full((tokens,), -1, dtype=torch.int64, device=device)
    lengths = torch.tensor([4, 32] + [0] * tokens, dtype=torch.int32, device=device)
    nowhere = torch.full((tokens, case.step.tables.shape[1]), NOWHERE, dtype=torch.int32, device=device)
    step = DeviceStep(
        tokens + 2, 1, lengths, torch.cat((case.step.tables, nowhere)), torch.cat((case.step.rows, minus)),
        torch.cat((case.step.positions, minus)), 16,
    )  # fmt: skip
    before = case.cache.k.isnan().sum()
    cos, sin = torch.cat((case.cos, rope)), torch.cat((case.sin, rope))
    prepared = TritonAttention().prepare_device(step, 2)
    out = prepared.rotate_and_write(qkv[:, :4], qkv[:, 4:6], qkv[:, 6:], cos, sin, case.cache)
    assert not out[2:].any()
    assert not out.isnan().any()
    assert before - case.cache.k.isnan().sum() == 2 * 2 * 32  # two tokens, two heads
