"""Which kernels a device gets, and that a CPU never loads those of a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from octavo.errors import ConfigError
from octavo.kernels.select import select
from octavo.kernels.triton.attention import TritonAttention


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_gpu_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'cuda:0' was asked for, but torch .* sees no CUDA GPU"):
        select("cuda:0", "bfloat16")


@pytest.mark.gpu
def test_a_gpu_gets_kernels_that_can_be_recorded() -> None:
    kernels = select("cuda:0", "bfloat16")
    assert isinstance(kernels.attention, TritonAttention)
    assert kernels.replay is not None
    with pytest.raises(ConfigError, match="'cuda:99' does not exist"):
        select("cuda:99", "bfloat16")


def test_a_cpu_loads_no_kernel_of_a_gpu() -> None:
    check = (
        "import sys; from octavo.kernels.select import select; k = select('cpu', 'float32'); "
        "assert k.replay is None; assert not [m for m in sys.modules if m.startswith('octavo.kernels.triton')]"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=100)
