"""Linear, norm, activation and embedding ops against torch and Transformers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from octavo.errors import ConfigError
from octavo.kernels.api import LinearOps
from octavo.kernels.cpu.linear import CpuLinear, available
from octavo.kernels.ref.activation import RefActivation
from octavo.kernels.ref.embedding import RefEmbedding
from octavo.kernels.ref.linear import RefLinear
from octavo.kernels.ref.norm import RefNorm
from octavo.kernels.ref.state import RefState
from octavo.kernels.select import reference, select

LINEAR: dict[str, LinearOps] = {"ref": RefLinear(), "cpu": CpuLinear()}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 64, 96), (3, 576, 960), (17, 33, 7), (130, 64, 64)])
@pytest.mark.parametrize("ops", LINEAR.values(), ids=LINEAR)
def test_linear(ops: LinearOps, shape: tuple[int, int, int], bias: bool, dtype: torch.dtype) -> None:
    if isinstance(ops, CpuLinear) and not available():
        pytest.skip("this torch has no oneDNN ops")
    tokens, inputs, outputs = shape
    x, weight = torch.randn(tokens, inputs).to(dtype), (torch.randn(outputs, inputs) / inputs**0.5).to(dtype)
    extra = torch.randn(outputs).to(dtype) if bias else None
    got = ops.apply(x, ops.pack(weight.clone()), extra)
    want = x.double() @ weight.double().T + (0 if extra is None else extra.double())
    assert got.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)
    if extra is None:
        onto = torch.randn(tokens, outputs).to(dtype)
        want += onto.double()
        got = ops.apply_onto(x, ops.pack(weight.clone()), onto)
        torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_rms_norm_has_the_rounding_points_of_transformers(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    theirs = LlamaRMSNorm(64, eps=1e-5).to(dtype)
    theirs.weight.data = torch.randn(64).to(dtype)
    x, residual = (torch.randn(50, 64).to(dtype) for _ in range(2))
    with torch.no_grad():
        assert torch.equal(RefNorm().rms_norm(x, theirs.weight, 1e-5), theirs(x))
        normed, total = RefNorm().add_rms_norm(x.clone(), residual.clone(), theirs.weight, 1e-5)
        assert torch.equal(total, x + residual)
        assert torch.equal(normed, theirs(x + residual))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_silu_mul(dtype: torch.dtype) -> None:
    gate, up = torch.randn(5, 24).to(dtype), torch.randn(5, 24).to(dtype)
    got = RefActivation().silu_mul(torch.cat((gate, up), dim=1))
    # Exact but for torch's own last bit, which depends on how a tensor lies in memory.
    torch.testing.assert_close(got, F.silu(gate) * up, rtol=2.0**-7 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_embedding_gives_zero_outside_its_rows() -> None:
    table = torch.randn(4, 3)
    got = RefEmbedding().lookup(torch.tensor([3, 4, 6, 7, 8, 0], dtype=torch.int32), table, first=4)
    zero = torch.zeros(3)
    want = torch.stack([zero, table[0], table[2], table[3], zero, zero])
    assert torch.equal(got, want)


def test_state_reads_and_writes() -> None:
    tokens = torch.zeros(3, 5, dtype=torch.int32)
    state = RefState()
    rows, columns = torch.tensor([2, 0, 2]), torch.tensor([1, 4, 3])
    state.scatter(tokens, rows, columns, torch.tensor([7, 8, 9], dtype=torch.int32))
    assert tokens.tolist() == [[0, 0, 0, 0, 8], [0] * 5, [0, 7, 0, 9, 0]]
    assert state.gather_ids(tokens, rows, columns).tolist() == [7, 8, 9]


def test_select_names_what_it_cannot_run() -> None:
    assert select("cpu", "bfloat16") is not None
    assert reference() is not None
    with pytest.raises(ConfigError, match="dtype 'float16' is not supported; known: float32, bfloat16"):
        select("cpu", "float16")
    with pytest.raises(ConfigError, match="device 'tpu:0' is not supported"):
        select("tpu:0", "float32")
