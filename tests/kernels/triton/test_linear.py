"""Products with few rows against float64."""

from __future__ import annotations

import pytest
import torch

from octavo.kernels.triton.linear import TritonLinear
from octavo.kernels.triton.skinny import SkinnyShape, SkinnyWorkspace, skinny, skinny_shape
from tests.kernels.triton.paged import close

SIZES = [
    (48, 96),
    (7, 300),
    (130, 1024),
    pytest.param(4096, 4096, marks=pytest.mark.gpu),
    pytest.param(1000, 12288, marks=pytest.mark.gpu),
    pytest.param(24576, 4096, marks=pytest.mark.gpu),
]


ROWS = [1, 2, 3, *(pytest.param(rows, marks=pytest.mark.gpu) for rows in (4, 17, 33, 64, 65))]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("outputs", "size"), SIZES)
def test_linear(outputs, size, rows, biased, device) -> None:
    x = torch.randn(rows, size).bfloat16().to(device)
    weight = torch.randn(outputs, size).bfloat16().to(device)
    bias = torch.randn(outputs).bfloat16().to(device) if biased else None
    ops = TritonLinear()
    got = ops.apply(x, ops.pack(weight), bias)
    close(got, product(x, weight, bias), torch.bfloat16)


def product(x, weight, bias):
    want = x.double() @ weight.double().T
    return want if bias is None else want + bias.double()


@pytest.mark.parametrize(("rows", "biased"), [(3, True), (20, False), (64, False)])
@pytest.mark.parametrize("shape", [SkinnyShape(128, 4, 1), SkinnyShape(64, 3, 3)])
def test_some_rows(rows, biased, shape, device) -> None:
    """Rows of the input are part of a wider tensor, as those of a split product are."""
    x = torch.randn(rows, 300).bfloat16().to(device)[:, :256]
    weight = torch.randn(128, 256).bfloat16().to(device)
    bias = torch.randn(128).bfloat16().to(device) if biased else None
    workspace = SkinnyWorkspace(x.device)
    for _ in range(2):  # the second time, counters are those that the first left
        close(skinny(x, weight, bias, shape, workspace), product(x, weight, bias), torch.bfloat16)
    assert not workspace.counters.any()


def test_cuts_of_some_rows() -> None:
    """All programs are resident at once, and every one has columns."""
    for rows in (3, 8, 32, 33, 64):
        for outputs, size in ((6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288), (1024, 2048), (128, 128)):
            shape = skinny_shape(rows, outputs, size, 132)
            if shape is not None:
                assert shape.splits * max(1, outputs // 64) <= 3 * 132
                assert size // shape.block_k >= shape.splits
                assert size % shape.block_k == 0
    assert skinny_shape(2, 4096, 4096, 132) is None
    assert skinny_shape(65, 4096, 4096, 132) is None
    assert skinny_shape(16, 4100, 4096, 132) is None
    assert skinny_shape(16, 4096, 4100, 132) is None


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
