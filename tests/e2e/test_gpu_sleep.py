"""What a sleep gives back of a GPU, and weights that a trainer lends on the same GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

from octavo.client import cuda_weights
from tests.e2e.server import Server, running
from tests.e2e.trainer import Trainer, weights_of
from tests.teacher import Check, check_tokens
from tests.tiny import make_llama

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(240),
]

KV_MB = 256
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", f"{KV_MB}M")
WIDE = {"hidden_size": 512, "intermediate_size": 32768, "head_dim": 64}
#: Of the two layers' feed-forward halves alone.
WEIGHTS_MB = 2 * 3 * 512 * 32768 * 4 >> 20
PROMPT = [7, 8, 9, 10] * 8


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one config; smaller weights, because their sums are long."""
    folders = [tmp_path_factory.mktemp(f"wide-{seed}") for seed in range(2)]
    return [make_llama(folder, seed=seed, initializer_range=0.1, **WIDE) for seed, folder in enumerate(folders)]


@pytest.fixture(scope="module")
def server(models: list[Path]) -> Iterator[Server]:
    with running(models[0], *FLAGS) as server:
        yield server


def free_mb() -> int:
    """What the GPU has left, whoever uses it."""
    return int(torch.cuda.mem_get_info(0)[0]) >> 20


def complete(server: Server) -> list[int]:
    body = {
        "model": "tiny",
        "prompt": PROMPT,
        "max_tokens": 20,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
    return list(answer["choices"][0]["token_ids"])


@pytest.mark.parametrize("level", ["1", "2"])
def test_a_sleep_frees_weights_and_cache_and_wakes_to_the_same(server: Server, level: str) -> None:
    trainer = Trainer(server.url)
    before, awake = complete(server), free_mb()
    trainer.post("/sleep", level=level)
    freed = free_mb() - awake
    print(f"level {level}: {freed} MB are free that were not; weights {WEIGHTS_MB}, cache {KV_MB}")
    assert freed >= WEIGHTS_MB + KV_MB - 16
    trainer.post("/wake_up")
    trainer.post("/resume")
    assert complete(server) == before
    assert abs(free_mb() - awake) < 64
    trainer.close()


def test_weights_on_the_same_gpu_are_lent(server: Server, models: list[Path]) -> None:
    trainer = Trainer(server.url)
    trainer.post("/pause", mode="keep")
    trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "ipc"}})
    trainer.post("/start_weight_update")
    lent = {name: weight.cuda() for name, weight in weights_of(models[1]).items()}
    with cuda_weights(lent) as info:
        trainer.post("/update_weights", {"update_info": info})
    trainer.post("/finish_weight_update", {"weight_version": "lent"})
    trainer.post("/resume")
    check_tokens(models[1], Check(PROMPT, complete(server)))
    trainer.close()
