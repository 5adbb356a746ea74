"""Two engine cores that share the experts of a tiny Qwen3-MoE over gloo: waves, pauses, other weights, kills."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.server import Server, running, wait_for
from tests.e2e.test_crashes import ask_under_fire, blocks_are_back, check_all
from tests.e2e.trainer import Trainer, weights_of
from tests.families import FAMILIES, make_model
from tests.teacher import Check, check_requests

RANKS = 2
TOKENS = 120
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")
EXPERTS = ("--data-parallel-size", str(RANKS), "--enable-expert-parallel")


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Qwen3-MoE: 6 experts, of which each rank holds 3."""
    return make_model(tmp_path_factory.mktemp("moe"), FAMILIES["qwen3_moe"])


@pytest.fixture(scope="module")
def ranks(moe: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two ranks, which keeps copies of updated weights for workers that start again."""
    with running(moe, *FLAGS, *EXPERTS, "--weight-store", str(tmp_path_factory.mktemp("store"))) as server:
        yield server


def ask(server: Server, prompt: list[int], rank: int, max_tokens: int = TOKENS) -> list[int]:
    """Return the greedy tokens that a rank gives."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    headers = {"X-data-parallel-rank": str(rank)}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=90).json()
    return list(answer["choices"][0]["token_ids"])


def prompts(count: int) -> list[list[int]]:
    return [[(7 * row + 3 * column) % 200 + 10 for column in range(5 + row)] for row in range(count)]


def ask_all(server: Server, model: Path, ranks: list[int], max_tokens: int = TOKENS) -> None:
    """Ask these ranks at once; each token must be the choice of the whole model in one process."""
    asked = prompts(len(ranks))
    with ThreadPoolExecutor(len(ranks)) as pool:
        answers = list(pool.map(lambda row: ask(server, asked[row], ranks[row], max_tokens), range(len(ranks))))
    assert [len(tokens) for tokens in answers] == [max_tokens] * len(ranks)
    check_requests(model, [Check(prompt, tokens) for prompt, tokens in zip(asked, answers, strict=True)])


def steps(server: Server) -> float:
    """Steps that both ranks have made, those without requests among them."""
    return server.metric("octavo:engine_steps_total")


def test_both_ranks_give_what_one_process_gives(ranks: Server, moe: Path) -> None:
    ask_all(ranks, moe, [0, 1, 0, 1, 1, 0])


def test_an_idle_rank_serves_the_other_and_both_come_to_rest(ranks: Server, moe: Path) -> None:
    for rank in range(RANKS):
        ask_all(ranks, moe, [rank])
    seen = [steps(ranks)]

    def rests() -> bool:
        """Figures come twice a second at most, and none after the last."""
        seen.append(steps(ranks))
        return len(seen) > 40 and len(set(seen[-40:])) == 1

    wait_for(rests, 20, "no steps without requests")


def test_a_pause_in_the_middle_stops_both_and_loses_nothing(ranks: Server, moe: Path) -> None:
    trainer = Trainer(ranks.url)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask_all, ranks, moe, [0, 1, 1, 0], 300)
        wait_for(lambda: ranks.metric("octavo:num_requests_running") == 4, 20, "four requests run")
        trainer.post("/pause", mode="keep")
        assert not asked.done()
        trainer.post("/pause", mode="keep")
        trainer.post("/resume")
        asked.result(90)
    trainer.post("/pause", mode="wait")
    trainer.post("/sleep", level="2")
    trainer.post("/wake_up")
    trainer.post("/resume")
    ask_all(ranks, moe, [1, 0], 20)
    trainer.close()


def test_other_weights_reach_the_experts_of_both(ranks: Server, moe: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", FAMILIES["qwen3_moe"], seed=1)
    trainer = Trainer(ranks.url)
    trainer.update(weights_of(other), "other")
    ask_all(ranks, other, [0, 1], 40)
    trainer.update(weights_of(moe), "first")
    ask_all(ranks, moe, [0, 1], 40)
    trainer.close()


@pytest.mark.parametrize("part", ["worker-1.0", "engine-0"])
def test_a_killed_rank_takes_the_others_along_and_no_stream_is_lost(ranks: Server, moe: Path, part: str) -> None:
    """The workers of all ranks start again and meet; engine-0 has the coordinator."""
    before = {rank: ranks.pid(f"worker-{rank}.0") for rank in range(RANKS)}
    answers = ask_under_fire(ranks, part, max_tokens=200)
    check_all(moe, answers, 200)
    assert all(ranks.pid(f"worker-{rank}.0") != pid for rank, pid in before.items())
    blocks_are_back(ranks)
