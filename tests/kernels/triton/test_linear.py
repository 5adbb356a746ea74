"""Products with few rows against float64."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.triton.linear import TritonLinear
from tests.kernels.triton.paged import close

SIZES = [
    (48, 96),
    (7, 300),
    (130, 1024),
    pytest.param(4096, 4096, marks=pytest.mark.gpu),
    pytest.param(1000, 12288, marks=pytest.mark.gpu),
    pytest.param(24576, 4096, marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("outputs", "size"), SIZES)
def test_linear(outputs, size, rows, biased, device) -> None:
    x = torch.randn(rows, size).bfloat16().to(device)
    weight = torch.randn(outputs, size).bfloat16().to(device)
    bias = torch.randn(outputs).bfloat16().to(device) if biased else None
    ops = TritonLinear()
    got = ops.apply(x, ops.pack(weight), bias)
    want = x.double() @ weight.double().T
    if bias is not None:
        want += bias.double()
    close(got, want, torch.bfloat16)


def test_float32_keeps_its_digits(device) -> None:
    x, weight = torch.randn(3, 64, device=device), torch.randn(32, 64, device=device)
    ops = TritonLinear()
    close(ops.apply(x, ops.pack(weight), None), x.double() @ weight.double().T, torch.float32)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_product_added_to_a_sum(kind, device) -> None:
    x, weight, onto = (torch.randn(*shape).to(kind).to(device) for shape in ((9, 64), (32, 64), (9, 32)))
    ops = TritonLinear()
    want = onto.double() + x.double() @ weight.double().T
    close(ops.apply_onto(x, ops.pack(weight), onto), want, kind)
