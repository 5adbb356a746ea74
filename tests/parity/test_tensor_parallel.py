"""Two ranks in processes of their own give what one gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.parity.asks import mixed
from tests.parity.engine import Engine, EngineSetup
from tests.parity.processes import WorkerProcesses
from tests.teacher import check_requests
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

VARIANTS: dict[str, dict[str, Any]] = {
    "even": {},
    "uneven_heads_and_padded_vocabulary": {
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "hidden_size": 144,
        "vocab_size": 289,
        "intermediate_size": 101,
        "tie_word_embeddings": False,
    },
    "shared_kv_head_and_biases": {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_pass_the_parity_test(tmp_path: Path, variant: str) -> None:
    model = make_llama(tmp_path, **VARIANTS[variant])
    count = 64 if variant == "even" else 12
    asks = mixed(288, count, 48 if variant == "even" else 16, 60)
    with WorkerProcesses(2) as workers:
        served = Engine(model, EngineSetup(num_blocks=120, budget=64), workers).run(asks)
        assert workers.shutdown() == [0, 0]
        with pytest.raises(EOFError):
            workers.ranks[1].receive()  # only the output rank has reported
    assert all(len(seen.tokens) == seen.ask.max_tokens for seen in served)
    check_requests(model, [seen.check() for seen in served])


def test_two_ranks_in_bfloat16(tmp_path: Path) -> None:
    model = make_llama(tmp_path)
    with WorkerProcesses(2) as workers:
        served = Engine(model, EngineSetup(num_blocks=120, dtype="bfloat16"), workers).run(mixed(288, 8, 12, 40))
    check_requests(model, [seen.check() for seen in served], "bfloat16")
