"""Four engine cores behind one frontend: who serves what, and what happens when one dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from octavo.client import CallError, Client, generate_request
from octavo.v1 import inference_pb2_grpc
from tests.e2e.server import Server, running, wait_for
from tests.e2e.test_crashes import ask_under_fire, blocks_are_back, check_all
from tests.e2e.test_observability import expressions, hold
from tests.e2e.test_stopping import send_as_strangers

RANKS = 4
TOKENS = 200
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")


@pytest.fixture(scope="module")
def ranks(tiny: Path) -> Iterator[Server]:
    """A server of four engine cores."""
    with running(tiny, *FLAGS, "--data-parallel-size", str(RANKS), "--grpc-port", "0") as server:
        assert server.process.stdout is not None
        server.grpc = server.process.stdout.readline().rpartition("//")[2].strip()
        yield server


def figures(server: Server, name: str) -> list[int]:
    """What /server_info says of each rank."""
    return [rank[name] for rank in server.get("/server_info").json()["ranks"]]


def complete(server: Server, prompt: str, rank: str | None = None, **fields: object) -> httpx.Response:
    """Ask for one token."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    headers = {} if rank is None else {"X-data-parallel-rank": rank}
    return httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=30)


def test_all_are_told_of_and_counted_together(ranks: Server) -> None:
    wait_for(lambda: figures(ranks, "ready") == [True] * RANKS, 20, "all ranks")
    info = ranks.get("/server_info").json()
    assert [rank["rank"] for rank in info["ranks"]] == list(range(RANKS))
    assert ranks.metric("octavo:rank_ready") == RANKS
    blocks = info["engine"]["num_blocks"]  # of the first
    assert f'num_gpu_blocks="{RANKS * blocks}"' in ranks.get("/metrics").text
    assert ranks.get("/get_world_size").json() == {"world_size": RANKS}
    hold(expressions(ranks=True), ranks)


def test_a_rank_is_named_by_header_or_field_and_an_unknown_one_refused(ranks: Server) -> None:
    prompt = "a prompt that is longer than one block of tokens, for sure"
    assert complete(ranks, prompt, "2").status_code == 200
    again = complete(ranks, prompt, data_parallel_rank=2).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, "its cache is there and nowhere else"
    elsewhere = complete(ranks, prompt, "3", data_parallel_rank=2).json()
    assert elsewhere["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "the header goes before the field"
    for answer, field in (
        (complete(ranks, prompt, "4"), "data_parallel_rank"),
        (complete(ranks, prompt, data_parallel_rank=4), "data_parallel_rank"),
        (complete(ranks, prompt, "two"), "X-data-parallel-rank"),
        (complete(ranks, prompt, data_parallel_rank=-1), "data_parallel_rank"),
    ):
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field, answer.text
    assert "there are 0 to 3" in complete(ranks, prompt, "4").json()["error"]["message"]


def test_a_rank_is_named_by_metadata_or_field_of_grpc(ranks: Server) -> None:
    prompt = "one more prompt that is longer than one block of tokens, for grpc"
    with grpc.insecure_channel(ranks.grpc) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)

        def cached(rank: int | None, metadata: str | None = None) -> int:
            """Ask for one token, and return how many of the prompt were found."""
            asked = generate_request(prompt, max_tokens=1, temperature=0, data_parallel_rank=rank)
            named = [] if metadata is None else [("x-data-parallel-rank", metadata)]
            return int(stub.Generate(asked, metadata=named, timeout=30).usage.cached_tokens)

        assert cached(None, "1") == 0
        assert cached(1) > 0, "its cache is there and nowhere else"
        assert cached(1, "3") == 0, "the metadata goes before the field"
        assert cached(3) > 0
        for metadata, said in (("4", "there are 0 to 3"), ("two", "'x-data-parallel-rank' must be an integer")):
            with pytest.raises(grpc.RpcError) as caught:
                cached(None, metadata)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert said in caught.value.details()
    with Client(ranks.grpc) as client, pytest.raises(CallError) as refused:
        client.generate("x", data_parallel_rank=4)
    assert (refused.value.status, refused.value.param) == (grpc.StatusCode.INVALID_ARGUMENT, "data_parallel_rank")


def test_operations_reach_all(ranks: Server) -> None:
    def post(path: str) -> httpx.Response:
        return httpx.post(f"{ranks.url}{path}", timeout=30)

    assert post("/pause").status_code == 200
    assert ranks.get("/is_paused").json() == {"is_paused": True}
    assert figures(ranks, "ready") == [False] * RANKS
    assert post("/resume").status_code == 200
    wait_for(lambda: figures(ranks, "ready") == [True] * RANKS, 10, "all ranks again")
    prompt = "of this one nothing is left behind in any cache at all, as they were emptied"
    assert complete(ranks, prompt, "1").status_code == 200
    assert post("/reset_prefix_cache").status_code == 200
    usage = complete(ranks, prompt, "1").json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_se04_no_socket_of_any_rank_runs_what_strangers_send(ranks: Server, tmp_path: Path) -> None:
    send_as_strangers(ranks, tmp_path, ports=2)
    assert figures(ranks, "ready") == [True] * RANKS


def test_a_prefix_is_followed_to_its_rank(ranks: Server) -> None:
    prompt = "conversations that begin alike are best served where their beginning is known, " * 2
    cached = []
    for turn in range(8):
        usage = complete(ranks, prompt + "and more " * turn).json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached[0] == 0
    assert all(count > 0 for count in cached[1:]), cached


def test_streams_of_a_killed_rank_finish_and_no_other_notices(tiny: Path, ranks: Server) -> None:
    before = figures(ranks, "restarts")
    answers = ask_under_fire(ranks, "engine-1", max_tokens=TOKENS)
    check_all(tiny, answers, TOKENS)
    wait_for(lambda: figures(ranks, "ready") == [True] * RANKS, 60, "all ranks again")
    after = figures(ranks, "restarts")
    assert [now - then for now, then in zip(after, before, strict=True)] == [0, 1, 0, 0]
    blocks_are_back(ranks)


def test_a_killed_worker_of_a_rank_is_its_ranks_alone(tiny: Path, ranks: Server) -> None:
    others = [ranks.pid(f"worker-{rank}.0") for rank in range(RANKS) if rank != 2]
    answers = ask_under_fire(ranks, "worker-2.0", max_tokens=TOKENS)
    check_all(tiny, answers, TOKENS)
    assert [ranks.pid(f"worker-{rank}.0") for rank in range(RANKS) if rank != 2] == others
    wait_for(lambda: figures(ranks, "ready") == [True] * RANKS, 60, "all ranks again")
