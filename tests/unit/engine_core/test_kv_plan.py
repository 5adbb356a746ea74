"""How much memory the KV cache gets, and what is said when there is too little."""

from __future__ import annotations

import pytest

from octavo.config import EngineConfig
from octavo.engine_core.kv_plan import plan_kv
from octavo.errors import ConfigError
from octavo.wire.worker import KvSpec, KvTensor, Ready

GIB = 1 << 30
SPECS = tuple(
    KvSpec(layer, "full", (KvTensor("k", (2, 64), "bfloat16"), KvTensor("v", (2, 64), "bfloat16"))) for layer in (0, 1)
)
TOKEN_BYTES = 2 * 2 * 2 * 64 * 2


def config(**changes: object) -> EngineConfig:
    fields = {"model": "m", "model_name": "m", "model_context_len": 2048, "run_dir": "", "frontend_endpoint": ""}
    return EngineConfig(**{**fields, "device": "cuda", "kv_cache_bytes": None, **changes})  # type: ignore[arg-type]


def ready(kv_bytes: int) -> Ready:
    return Ready(0, 1000, SPECS, 10 * GIB, 14 * GIB, 1, 24 * GIB, 3 * GIB, kv_bytes)


def test_a_gpu_gives_what_it_has_left() -> None:
    plan = plan_kv(config(), ready(4096 * TOKEN_BYTES), 2, 0)
    assert plan.max_model_len == 2048
    assert 4000 <= plan.num_blocks * plan.block_tokens <= 4096


def test_what_is_missing_is_said_with_the_flags_that_help() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_kv(config(max_num_batched_tokens=8192), ready(-GIB // 2), 2, 0)
    message = caught.value.message
    assert message.startswith(
        "--gpu-memory-utilization 0.92 of the GPU's 24.00 GiB leaves no KV cache: 14.00 GiB are in"
    )
    assert "a step of 8192 tokens takes 3.00, and 0.50 GiB are missing" in message
    for flag in ("--max-num-batched-tokens", "--max-num-seqs", "--tensor-parallel-size"):
        assert flag in message


def test_a_context_that_does_not_fit_names_the_flag_of_the_memory() -> None:
    for changes, flag in (({}, "--gpu-memory-utilization"), ({"kv_cache_bytes": 200_000}, "--kv-cache-memory-bytes")):
        with pytest.raises(ConfigError, match=f"raise {flag}"):
            plan_kv(config(max_model_len=2000, **changes), ready(200_000), 2, 0)
