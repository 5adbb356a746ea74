"""Rotary tables against Transformers' definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from octavo.errors import ModelError
from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.parallel import SingleGroup
from octavo.layers.rope import RopeTable, frequencies
from octavo.layers.rope_config import RopeConfig
from octavo.models.configs.phi3 import parse_phi3

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
def test_trap_rope_variants_tables_are_those_of_transformers(kind: str, dim: int, dtype: torch.dtype) -> None:
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


@pytest.mark.parametrize("kind", ["spiral", "su"])
def test_unknown_scalings_are_refused(kind: str) -> None:
    known = "default, linear, dynamic, llama3, yarn, longrope"
    with pytest.raises(ModelError, match=f"rope type '{kind}' is not supported; known: {known}"):
        RopeConfig.parse({"rope_scaling": {"rope_type": kind, "factor": 2.0}}, 64)


LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0 + 0.05 * i for i in range(24)], "long_factor": [1.0 + i for i in range(24)],
}  # fmt: skip


@pytest.mark.parametrize("length", [64, 65, 1024])
def test_long_rope_takes_the_factors_of_the_longest_sequence(length: int) -> None:
    settings = {"hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 1024, "pad_token_id": None}
    config = Phi3Config(
        **settings, original_max_position_embeddings=64, partial_rotary_factor=0.75, rope_parameters=dict(LONGROPE)
    )
    theirs = Phi3RotaryEmbedding(config)(torch.zeros(1), torch.arange(length)[None])
    rope = parse_phi3(config.to_dict() | {"vocab_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}).ropes[0]
    cos, sin = RopeTable(rope, Build(reference(), SingleGroup(), torch.float32, "cpu", length))(torch.arange(length))
    for ours, want in ((cos, theirs[0][0]), (sin, theirs[1][0])):
        torch.testing.assert_close(ours[:, :24], want[:, :24], rtol=0, atol=1e-6)
        torch.testing.assert_close(ours[:, 32:56], want[:, 24:], rtol=0, atol=1e-6)
    assert bool((cos[:, 24:32] == 1).all()) and not sin[:, 24:32].any()  # these do not turn


@pytest.mark.parametrize("length", [512, 2048])
def test_dynamic_scaling_takes_the_base_of_the_longest_sequence(length: int) -> None:
    params = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=512, rope_parameters=dict(params)
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(length)[None])
    ours = RopeTable(
        RopeConfig.parse(config.to_dict(), 64), Build(reference(), SingleGroup(), torch.float32, "cpu", length)
    )
    torch.testing.assert_close(ours(torch.arange(length))[0], cos[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(ours(torch.arange(length))[1], sin[0], rtol=0, atol=1e-6)


#: The cases of the bank that are about rotation; see ../shared/cases.
@pytest.mark.parametrize("spelling", ["old", "new", "nested"])
@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn", "yarn_mscale"])
def test_cf02_every_spelling_means_the_same(kind: str, spelling: str) -> None:
    """Long positions turn as in Transformers, wherever the config has the parameters."""
    params, length = dict(KINDS[kind]), 20001
    flat = {key: value for key, value in params.items() if key != "rope_theta"}
    config: dict[str, Any] = {"max_position_embeddings": length}
    config |= {
        "old": {"rope_theta": params["rope_theta"], "rope_scaling": flat},
        "new": {"rope_parameters": params},
        "nested": {"rope_parameters": {"full_attention": params, "sliding_attention": {"rope_type": "default"}}},
    }[spelling]
    theirs = LlamaConfig(
        hidden_size=256, num_attention_heads=4, max_position_embeddings=length, rope_parameters=dict(params)
    )
    positions = torch.tensor([0, 5000, 20000])
    cos, sin = LlamaRotaryEmbedding(theirs)(torch.zeros(1), positions[None])
    ours = RopeTable(RopeConfig.parse(config, 64), Build(reference(), SingleGroup(), torch.float32, "cpu", length))
    torch.testing.assert_close(ours(positions)[0], cos[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(ours(positions)[1], sin[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ({"rope_theta": 10000.0}, "rope_parameters has rope_theta 500000.0, rope_theta says 10000.0"),
        ({"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_type 'llama3', rope_scaling says 'linear'"),
        ({"rope_scaling": {"factor": 2.0}}, "factor 8.0, rope_scaling says 2.0"),
    ],
)
def test_cf02_spellings_that_contradict_each_other_are_refused(old: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        RopeConfig.parse({"rope_parameters": LLAMA3} | old, 64)
