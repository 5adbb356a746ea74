"""Choose an implementation for each op family: once, at build."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.kernels.api import Kernels
from octavo.kernels.cpu import linear as cpu_linear
from octavo.kernels.cpu.attention import CpuAttention
from octavo.kernels.cpu.sample import CpuSample
from octavo.kernels.ref.activation import RefActivation
from octavo.kernels.ref.attention import RefAttention
from octavo.kernels.ref.embedding import RefEmbedding
from octavo.kernels.ref.linear import RefLinear
from octavo.kernels.ref.logits import RefLogits
from octavo.kernels.ref.mask import RefMask
from octavo.kernels.ref.moe import RefMoe
from octavo.kernels.ref.norm import RefNorm
from octavo.kernels.ref.row_attention import RefRowAttention
from octavo.kernels.ref.sample import RefSample
from octavo.kernels.ref.state import RefState

__all__ = ["DTYPES", "reference", "select"]

#: Dtypes of weights, activations and the KV cache.
DTYPES = ("float32", "bfloat16")


def select(device: str, dtype: str) -> Kernels:
    """Return the fastest implementation of each family for `device` ("cpu", "cuda:0") and `dtype`.

    Raises ConfigError for a device or dtype that nothing here runs on.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"the dtype {dtype!r} is not supported; known: {', '.join(DTYPES)}.", "dtype")
    kind = device.partition(":")[0]
    if kind == "cuda":
        # Triton is neither there nor wanted on machines without a GPU.
        from octavo.kernels.triton.build import triton_kernels

        return triton_kernels(device, dtype)
    if kind != "cpu":
        raise ConfigError(f"the device {device!r} is not supported; known: cpu, cuda, cuda:N.", "device")
    return Kernels(
        linear=cpu_linear.CpuLinear() if cpu_linear.available() else RefLinear(),
        embedding=RefEmbedding(),
        norm=RefNorm(),
        activation=RefActivation(),
        moe=RefMoe(),
        attention=CpuAttention(),
        rows=RefRowAttention(),
        sample=CpuSample(),
        mask=RefMask(),
        state=RefState(),
        logits=RefLogits(),
    )


def reference() -> Kernels:
    """Return the oracle for every family: plain torch, on any device."""
    return Kernels(
        linear=RefLinear(),
        embedding=RefEmbedding(),
        norm=RefNorm(),
        activation=RefActivation(),
        moe=RefMoe(),
        attention=RefAttention(),
        rows=RefRowAttention(),
        sample=RefSample(),
        mask=RefMask(),
        state=RefState(),
        logits=RefLogits(),
    )
