"""Configs of every family: what a file leaves out has Transformers' default; what is wrong is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import transformers

from octavo.errors import ModelError
from octavo.models.configs.decoder import DecoderConfig
from octavo.models.registry import find
from tests.families import FAMILIES

#: What every config.json says, whatever the defaults are. Thirty layers: defaults that depend on the layer show.
SIZES = {
    "vocab_size": 1000,
    "hidden_size": 4096,
    "intermediate_size": 64,
    "num_hidden_layers": 30,
    "num_attention_heads": 32,
}


def parse(family: str, config: dict[str, Any]) -> DecoderConfig:
    parsed = find(FAMILIES[family].model).parse(config)
    assert isinstance(parsed, DecoderConfig)
    return parsed


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_left_out_has_the_default_of_transformers(family: str) -> None:
    whole = getattr(transformers, FAMILIES[family].config)(**SIZES, pad_token_id=None).to_dict()
    theirs, ours = (dataclasses.asdict(parse(family, config)) for config in (whole, SIZES))
    assert ours == theirs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0, not a positive number"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is no multiple of num_key_value_heads 5"),
        ({"head_dim": 7}, "is odd|not an even number"),
        ({"vocab_size": None}, "lacks 'vocab_size'"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope type 'spiral' is not supported"),
        ({"hidden_act": "relu", "hidden_activation": "relu"}, "hidden_act(ivation)? 'relu' is not supported"),
    ],
)
def test_what_is_wrong_is_named(family: str, changes: dict[str, Any], message: str) -> None:
    if family == "gemma3" and "rope_parameters" in changes:
        changes = {"rope_parameters": {"full_attention": changes["rope_parameters"]}}
    with pytest.raises(ModelError, match=message):
        parse(family, SIZES | changes)


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "qwen2", "qwen3"])
def test_windows_by_type_of_layer(family: str) -> None:
    kinds = ["full_attention", "sliding_attention"] * 15
    settings = {"layer_types": kinds, "sliding_window": 11, "use_sliding_window": True}
    assert parse(family, SIZES | settings).windows == (0, 11) * 15
    with pytest.raises(ModelError, match="layer_types has 3 entries for 30 layers"):
        parse(family, SIZES | settings | {"layer_types": kinds[:3]})
    with pytest.raises(ModelError, match="layer type 'chunked_attention' is not supported"):
        parse(family, SIZES | settings | {"layer_types": ["chunked_attention"] * 30})


def test_older_spellings_of_gemma_3() -> None:
    old = {"rope_theta": 5e5, "rope_local_base_freq": 7e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    new = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 7e3},
        }
    }
    assert (
        parse("gemma3", SIZES | old | {"sliding_window_pattern": 3}).ropes
        == parse("gemma3", SIZES | new | {"sliding_window_pattern": 3}).ropes
    )
