"""Norms, activation and embedding against `ref`."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.ref.activation import RefActivation
from octavo.kernels.ref.embedding import RefEmbedding
from octavo.kernels.ref.norm import RefNorm
from octavo.kernels.triton.activation import TritonActivation
from octavo.kernels.triton.embedding import TritonEmbedding
from octavo.kernels.triton.norm import TritonNorm

SIZES = [
    (1, 64),
    (5, 96),
    (3, 1000),
    pytest.param(1, 4096, marks=pytest.mark.gpu),
    pytest.param(2048, 4096, marks=pytest.mark.gpu),
    pytest.param(7, 16384, marks=pytest.mark.gpu),
]
DTYPES = [torch.float32, torch.bfloat16]


def near(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    """Sums in another order: two roundings to the dtype may each fall the other way, in few places."""
    ulp = 2.0**-6 if actual.dtype == torch.bfloat16 else 1e-5
    assert torch.allclose(actual.float(), wanted.float(), rtol=ulp, atol=1e-6)
    if actual.dtype == torch.bfloat16:
        assert float((actual != wanted).float().mean()) < 0.02


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), SIZES)
@pytest.mark.parametrize("wide", [False, True])
def test_rms_norm(rows, size, dtype, wide, device) -> None:
    x = (torch.randn(rows, size) * 3).to(dtype).to(device)
    weight = torch.randn(size).to(torch.float32 if wide else dtype).to(device)
    kept = x.clone()
    near(TritonNorm().rms_norm(x, weight, 1e-6), RefNorm().rms_norm(x, weight, 1e-6))
    assert torch.equal(x, kept)


def test_rms_norm_of_heads_in_a_wider_tensor(device) -> None:
    x = torch.randn(3, 10, 32, device=device)[:, 2:7]
    weight = torch.randn(32, device=device)
    near(TritonNorm().rms_norm(x, weight, 1e-5), RefNorm().rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_add_rms_norm(rows, size, dtype, device) -> None:
    x, residual = (torch.randn(rows, size).to(dtype).to(device) for _ in range(2))
    weight = torch.randn(size).to(dtype).to(device)
    want, total = RefNorm().add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)
    got, got_total = TritonNorm().add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(got_total, total)
    near(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_silu_mul(rows, size, dtype, device) -> None:
    x = (torch.randn(rows, 2 * size) * 4).to(dtype).to(device)
    near(TritonActivation().silu_mul(x), RefActivation().silu_mul(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_gelu_mul(rows, size, dtype, device) -> None:
    """Far below zero torch's own gelu is off by cancellation, relatively; so the tolerance is absolute."""
    x = (torch.randn(rows, 2 * size) * 4).to(dtype).to(device)
    got, want = TritonActivation().gelu_mul(x), RefActivation().gelu_mul(x)
    assert torch.allclose(got.float(), want.float(), rtol=2.0**-6 if dtype == torch.bfloat16 else 1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first", [0, 40])
def test_lookup(first, dtype, device) -> None:
    table = torch.randn(50, 96).to(dtype).to(device)
    ids = torch.randint(0, 100, (13,), dtype=torch.int32).to(device)
    got = TritonEmbedding().lookup(ids, table, first)
    assert torch.equal(got, RefEmbedding().lookup(ids, table, first))


def test_no_rows(device) -> None:
    x, weight = torch.empty(0, 64, device=device), torch.ones(64, device=device)
    assert TritonNorm().rms_norm(x, weight, 1e-6).shape == (0, 64)
    assert TritonNorm().add_rms_norm(x, x, weight, 1e-6)[0].shape == (0, 64)
    assert TritonActivation().silu_mul(x).shape == (0, 32)


def test_a_poisoned_row_stays_alone(device) -> None:
    x = torch.randn(4, 64, device=device)
    x[2] = float("nan")
    out = TritonNorm().rms_norm(x, torch.ones(64, device=device), 1e-6)
    assert out.isnan().any(dim=1).tolist() == [False, False, True, False]
