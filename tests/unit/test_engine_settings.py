"""From settings to what an engine core is told: experts spread over engine cores; and whose tokenizer is read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from octavo.config import build
from octavo.engine_settings import engine_config, tokenizer_source
from octavo.errors import ConfigError

MOE = {
    "vocab_size": 32,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "intermediate_size": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
SPREAD = {"enable_expert_parallel": "true", "device": "cpu"}


def files(folder: Path, architecture: str = "MixtralForCausalLM") -> Any:
    return SimpleNamespace(context_len=64, path=folder, architecture=architecture, config=MOE)


def test_experts_are_spread_over_engine_cores(tmp_path: Path) -> None:
    given = cast("Any", {"model": "m", "data_parallel_size": "2", **SPREAD})
    told = [engine_config(build(given), files(tmp_path), tmp_path, rank=rank) for rank in range(2)]
    assert [config.expert_folder for config in told] == [str(tmp_path)] * 2, "where all of them find each other"
    assert [config.graph_sizes for config in told] == [()] * 2, "rows of other ranks come into a step"
    alone = build(cast("Any", {"model": "m", "data_parallel_size": "2", "device": "cpu"}))
    assert engine_config(alone, files(tmp_path), tmp_path).expert_folder == ""


@pytest.mark.parametrize(
    ("given", "architecture", "said"),
    [
        ({}, "MixtralForCausalLM", "give --data-parallel-size 2 or more"),
        (
            {"data_parallel_size": "2", "data_parallel_multi_port_external_lb": "true"},
            "MixtralForCausalLM",
            "without --data-parallel-multi-port-external-lb",
        ),
        ({"data_parallel_size": "2", "tensor_parallel_size": "2"}, "MixtralForCausalLM", "one worker an engine core"),
        ({"data_parallel_size": "2"}, "MistralForCausalLM", "MistralForCausalLM has no experts"),
    ],
)
def test_what_cannot_be_spread_is_refused(tmp_path: Path, given: dict[str, str], architecture: str, said: str) -> None:
    config = build(cast("Any", {"model": "m", **given, **SPREAD}))
    with pytest.raises(ConfigError, match=said):
        engine_config(config, files(tmp_path, architecture), tmp_path)


def test_a_tokenizer_is_not_both_named_and_unwanted() -> None:
    assert tokenizer_source(build({"model": "m"})) == ""
    assert tokenizer_source(build({"model": "m", "tokenizer": "t"})) == "t"
    assert tokenizer_source(build({"model": "m", "skip_tokenizer_init": "true"})) is None
    with pytest.raises(ConfigError, match="--skip-tokenizer-init and --tokenizer t contradict"):
        tokenizer_source(build({"model": "m", "tokenizer": "t", "skip_tokenizer_init": "true"}))
