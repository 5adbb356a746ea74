"""The kernels of a CUDA device."""

from __future__ import annotations

import torch

from octavo.errors import ConfigError
from octavo.kernels.api import Kernels
from octavo.kernels.ref.row_attention import RefRowAttention
from octavo.kernels.triton.activation import TritonActivation
from octavo.kernels.triton.attention import TritonAttention
from octavo.kernels.triton.embedding import TritonEmbedding
from octavo.kernels.triton.linear import TritonLinear
from octavo.kernels.triton.logits import TritonLogits
from octavo.kernels.triton.mask import TritonMask
from octavo.kernels.triton.moe import GroupedMoe
from octavo.kernels.triton.norm import TritonNorm
from octavo.kernels.triton.replay import TritonReplay
from octavo.kernels.triton.sample import TritonSample
from octavo.kernels.triton.state import TritonState

__all__ = ["triton_kernels"]

#: Compute capability from which on bfloat16 products run in tensor cores.
_OLDEST = (8, 0)


def triton_kernels(device: str, dtype: str) -> Kernels:
    """Return the Triton implementation of every family for `device` ("cuda" or "cuda:n") and `dtype`.

    Raises ConfigError where there is no such device or it is too old.
    """
    if not torch.cuda.is_available():
        raise ConfigError(
            f"the device {device!r} was asked for, but torch {torch.__version__} sees no CUDA GPU.", "device"
        )
    index = torch.device(device).index or 0
    if index >= torch.cuda.device_count():
        raise ConfigError(f"the device {device!r} does not exist: there are {torch.cuda.device_count()}.", "device")
    capability = torch.cuda.get_device_capability(index)
    if capability < _OLDEST:
        name, version = torch.cuda.get_device_name(index), ".".join(map(str, capability))
        raise ConfigError(f"{name} has compute capability {version}; {dtype} kernels need 8.0 or more.", "device")
    attention, state = TritonAttention(), TritonState()
    return Kernels(
        linear=TritonLinear(),
        embedding=TritonEmbedding(),
        norm=TritonNorm(),
        activation=TritonActivation(),
        moe=GroupedMoe(),
        attention=attention,
        rows=RefRowAttention(),
        sample=TritonSample(),
        mask=TritonMask(),
        state=state,
        logits=TritonLogits(),
        replay=TritonReplay(attention, state),
    )
