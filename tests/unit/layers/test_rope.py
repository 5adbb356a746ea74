"""Rotary tables against Transformers' definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from octavo.errors import ModelError
from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.parallel import SingleGroup
from octavo.layers.rope import RopeTable, frequencies
from octavo.layers.rope_config import RopeConfig

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 1024}
KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "theta": {"rope_type": "default", "rope_theta": 100000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": LLAMA3,
    "llama3_factor_32": LLAMA3 | {"factor": 32.0, "low_freq_factor": 2.0},
    "yarn": YARN,
    "yarn_attention_factor": YARN | {"attention_factor": 0.9},
    "yarn_betas": YARN | {"beta_fast": 16.0, "beta_slow": 2.0},
    "yarn_mscale": YARN | {"mscale": 1.2, "mscale_all_dim": 0.7},
    "yarn_not_truncated": YARN | {"truncate": False},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_those_of_transformers(kind: str, dim: int, dtype: torch.dtype) -> None:
    config = LlamaConfig(
        hidden_size=dim * 4, num_attention_heads=4, head_dim=dim, max_position_embeddings=16384,
        rope_parameters=dict(KINDS[kind]),
    )  # fmt: skip
    build = Build(reference(), SingleGroup(), dtype, "cpu", 16384)
    ours = RopeTable(RopeConfig.parse(config.to_dict(), dim), build)
    positions = torch.tensor([0, 1, 2, 63, 64, 1023, 1024, 8191, 8192, 16383])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), positions[None])
    got_cos, got_sin = ours(positions)
    assert got_cos.dtype == dtype
    torch.testing.assert_close(got_cos, cos[0], rtol=0, atol=1e-6 if dtype == torch.float32 else 0)
    torch.testing.assert_close(got_sin, sin[0], rtol=0, atol=1e-6 if dtype == torch.float32 else 0)


def test_old_configs_mean_the_same() -> None:
    new = RopeConfig.parse({"rope_parameters": LLAMA3}, 64)
    scaling = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    assert RopeConfig.parse({"rope_theta": 500000.0, "rope_scaling": scaling}, 64) == new
    linear = RopeConfig.parse({"rope_scaling": {"type": "linear", "factor": 2.0}}, 64)
    assert (linear.rope_type, linear.factor, linear.theta) == ("linear", 2.0, 10000.0)
    assert RopeConfig.parse({"rope_theta": 5.0, "rope_scaling": None}, 64).theta == 5.0


def test_frequency_factors_of_gguf_are_llama3s_scaling() -> None:
    scaled, _ = frequencies(RopeConfig.parse({"rope_parameters": LLAMA3}, 64))
    plain = RopeConfig.parse({"rope_theta": 500000.0}, 64)
    factors = (frequencies(plain)[0] / scaled).tolist()
    got, _ = frequencies(RopeConfig.parse({"rope_parameters": {"rope_theta": 500000.0, "freq_factors": factors}}, 64))
    torch.testing.assert_close(got, scaled)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su"])
def test_scalings_that_change_with_length_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match=f"rope type '{kind}' is not supported; known: default, linear, llama3, yarn"):
        RopeConfig.parse({"rope_scaling": {"rope_type": kind, "factor": 2.0}}, 64)
