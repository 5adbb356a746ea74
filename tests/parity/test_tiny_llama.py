"""Tiny random Llamas against Transformers, through the real engine core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from octavo.layers.formats import DenseFormat
from tests.parity.asks import mixed
from tests.parity.engine import EngineSetup, serve
from tests.teacher import check_requests
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "untied": {"tie_word_embeddings": False},
    "one_head_each": {"num_key_value_heads": 4},
    "one_kv_head": {"num_key_value_heads": 1},
    "head_128": {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 1},
    "head_24": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "llama3": {"rope_parameters": LLAMA3},
    "yarn": {"rope_parameters": YARN},
    "linear": {"rope_parameters": LINEAR},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_variant(tmp_path: Path, variant: str, dtype: str) -> None:
    model = make_llama(tmp_path, **VARIANTS[variant])
    _, served = serve(model, EngineSetup(num_blocks=200, dtype=dtype), mixed(288, 12, 24, 60))
    check_requests(model, [seen.check() for seen in served], dtype)


def test_products_that_are_added_to_the_residual_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large steps on GPUs do it: see RowLinear."""
    monkeypatch.setattr(DenseFormat, "sum_rows", property(lambda self: 3))
    model = make_llama(tmp_path)
    _, served = serve(model, EngineSetup(num_blocks=200), mixed(288, 6, 8, 60))
    check_requests(model, [seen.check() for seen in served])


def test_64_requests_staggered_with_shared_prefixes(tmp_path: Path) -> None:
    model = make_llama(tmp_path)
    engine, served = serve(model, EngineSetup(num_blocks=600), mixed(288, 64, 48, 120))
    assert sum(seen.cached > 0 for seen in served) >= 15
    assert engine.stats().prefix_hits >= 15 * 48
    check_requests(model, [seen.check() for seen in served])


def test_64_requests_in_chunks_of_16(tmp_path: Path) -> None:
    model = make_llama(tmp_path)
    engine, served = serve(model, EngineSetup(num_blocks=600, budget=16), mixed(288, 64, 48, 120))
    assert engine.chunked > 64
    check_requests(model, [seen.check() for seen in served])


def test_64_requests_with_preemption(tmp_path: Path) -> None:
    model = make_llama(tmp_path)
    engine, served = serve(model, EngineSetup(num_blocks=40, block_tokens=8), mixed(288, 64, 48, 120))
    assert engine.stats().preemptions > 5
    check_requests(model, [seen.check() for seen in served])


def test_trap_batch_variance_schedules_change_no_token(tmp_path: Path) -> None:
    """In fp32, the same requests alone, together, in chunks and preempted give the same tokens."""
    model = make_llama(tmp_path)
    asks = mixed(288, 16, 32, 60)
    setups = [
        EngineSetup(num_blocks=400),
        EngineSetup(num_blocks=400, max_num_seqs=1),
        EngineSetup(num_blocks=400, budget=16),
        EngineSetup(num_blocks=30, block_tokens=4, max_model_len=112),
        EngineSetup(num_blocks=400, caching=False),
    ]
    outputs = [[seen.tokens for seen in serve(model, setup, asks)[1]] for setup in setups]
    for other in outputs[1:]:
        assert other == outputs[0]
