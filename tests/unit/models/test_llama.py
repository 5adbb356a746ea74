from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig as TheirConfig
from transformers import LlamaForCausalLM

from octavo.errors import ModelError
from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.parallel import SingleGroup
from octavo.models.base import build_model
from octavo.models.registry import ARCHITECTURES, find

SMALL: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def build(dtype: torch.dtype = torch.float32) -> Build:
    return Build(reference(), SingleGroup(), dtype, "cpu", 64)


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": True}, {"attention_bias": True, "mlp_bias": True}, {"head_dim": 24}],
    ids=["plain", "tied", "biases", "head_dim"],
)
def test_weights_are_those_of_transformers(changes: dict[str, Any]) -> None:
    config = TheirConfig(**SMALL, **changes)
    theirs = LlamaForCausalLM(config)
    want = {name: tuple(value.shape) for name, value in theirs.state_dict().items()}
    if config.tie_word_embeddings:
        del want["lm_head.weight"]
    model = build_model("LlamaForCausalLM", config.to_dict(), build())
    needed = {name: part for name, part in model.checkpoint().items() if not part.optional}
    assert {name: part.shape for name, part in needed.items()} == want
    elements = sum(int(torch.Size(shape).numel()) for shape in want.values())
    assert model.weight_bytes() == 4 * elements


def test_specs_name_every_layer_alike() -> None:
    model = build_model("LlamaForCausalLM", TheirConfig(**SMALL).to_dict(), build(torch.bfloat16))
    specs = model.kv_specs()
    assert [spec.layer for spec in specs] == [0, 1]
    assert {(spec.kind, spec.window, spec.shares) for spec in specs} == {("full", 0, None)}
    assert [(t.name, t.shape, t.dtype) for t in specs[0].tensors] == [
        ("k", (2, 8), "bfloat16"),
        ("v", (2, 8), "bfloat16"),
    ]
    assert model.kv_heads(0) == 2


def test_tensors_that_are_left_out_on_purpose() -> None:
    plain = build_model("LlamaForCausalLM", TheirConfig(**SMALL).to_dict(), build())
    assert not plain.is_ignored("lm_head.weight")
    assert plain.is_ignored("model.layers.1.self_attn.rotary_emb.inv_freq")
    assert not plain.is_ignored("model.layers.1.self_attn.q_proj.weight_scale")


def test_the_registry_names_what_it_knows() -> None:
    assert find("LlamaForCausalLM") is ARCHITECTURES["LlamaForCausalLM"]
    with pytest.raises(ModelError, match="'GPT5' is not supported; known: Gemma2ForCausalLM, "):
        find("GPT5")
