"""Control of a real server: pauses in mid-stream, other weights, sleep, workers that die after an update."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.rl_stream import PROMPT, HttpStream
from tests.e2e.server import Server, running, wait_for
from tests.e2e.trainer import Trainer, segment, weights_of
from tests.teacher import Check, check_tokens
from tests.tiny import make_llama

FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same config with other weights."""
    return make_llama(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture
def trainer(server: Server, tiny: Path) -> Iterator[Trainer]:
    """A trainer; at the end the server has the checkpoint's weights again."""
    trainer = Trainer(server.url)
    yield trainer
    trainer.post("/abort_weight_update")
    trainer.post("/wake_up")
    trainer.update(weights_of(tiny))
    trainer.close()


def complete(server: Server, prompt: list[int] = PROMPT, max_tokens: int = 8) -> tuple[list[int], int]:
    """Return the tokens of a greedy completion and how many of the prompt were found in the cache."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
    details = answer["usage"].get("prompt_tokens_details") or {}
    return answer["choices"][0]["token_ids"], details.get("cached_tokens") or 0


def test_rl01_no_stale_hit_after_an_update(server: Server, trainer: Trainer, tiny: Path) -> None:
    """One layer changes: nothing of the prompt is found, the output is that of a fresh model."""
    before, _ = complete(server)
    assert complete(server)[1] > 0
    name = "model.layers.0.mlp.down_proj.weight"
    changed = {name: weights_of(tiny)[name] * -1.5}
    trainer.update(changed, clear_cache="false")
    after, cached = complete(server)
    assert cached == 0 and after != before
    trainer.update({name: weights_of(tiny)[name]})
    assert complete(server)[0] == before


def test_rl04_a_new_version_aborts_nobody(server: Server, trainer: Trainer) -> None:
    before = trainer.get("/weight_info")["weight_version"]
    streams = [HttpStream(server, 200, [20 + i, 21, 22]) for i in range(16)]
    for stream in streams:
        stream.reaches(2)
    trainer.post("/pause", mode="keep")
    answer = trainer.post("/update_weight_version", {"new_version": "named"})
    assert answer == {"success": True, "new_version": "named"}
    trainer.post("/resume")
    assert [(len(stream.end()), stream.finish) for stream in streams] == [(200, "length")] * 16
    assert [stream.versions for stream in streams] == [[before, "named"]] * 16
    assert trainer.get("/weight_info") == {"weight_version": "named"}
    ids = httpx.post(
        f"{server.url}/inference/v1/generate", json={"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 3}}
    )
    text = httpx.post(f"{server.url}/v1/completions", json={"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 3})
    assert [answer.json()["weight_versions"] for answer in (ids, text)] == [["named"], ["named"]]


def test_a_pause_aborts_or_waits_and_new_requests_wait(server: Server, trainer: Trainer) -> None:
    long = HttpStream(server, 400)
    long.reaches(2)
    trainer.post("/pause")
    long.end()
    assert long.finish == "abort" and 2 <= len(long.tokens) < 400
    assert server.get("/ready").status_code == 503 and server.get("/health").status_code == 200
    late = HttpStream(server, 4)
    trainer.get("/server_info")
    assert not late.tokens
    trainer.post("/resume")
    assert len(late.end()) == 4
    wait_for(server.ready, 10, "ready")
    long = HttpStream(server, 200)
    long.reaches(1)
    trainer.post("/pause", mode="wait")
    assert (len(long.end()), long.finish) == (200, "length")
    trainer.post("/resume")


def test_requests_can_be_aborted(server: Server, trainer: Trainer) -> None:
    stream = HttpStream(server, 400)
    stream.reaches(1)
    assert trainer.post("/abort_requests", {"request_ids": ["cmpl-nobody"]}) == {"status": "aborted", "aborted": 0}
    assert trainer.post("/abort_requests")["aborted"] == 1
    stream.end()
    assert stream.finish == "abort"


@pytest.mark.parametrize("level", ["1", "2"])
def test_rl03_sleep_and_wake_give_the_same_outputs(server: Server, trainer: Trainer, level: str) -> None:
    before, _ = complete(server)
    stream = HttpStream(server, 100)
    stream.reaches(1)
    trainer.post("/sleep", level=level, mode="keep")
    trainer.post("/sleep", level=level, mode="keep")
    trainer.post("/wake_up", tags="weights")
    assert trainer.get("/is_sleeping") == {"is_sleeping": True}
    late = HttpStream(server, 4)
    assert trainer.get("/server_info")["engine"]["state"] == "sleeping" and not late.tokens
    trainer.post("/wake_up", tags="kv_cache")
    assert trainer.get("/is_sleeping") == {"is_sleeping": False}
    assert (len(stream.end()), len(late.end())) == (100, 4)
    assert complete(server)[0] == before


def test_rl06_what_is_wrong_is_refused_and_changes_nothing(server: Server, trainer: Trainer, tiny: Path) -> None:
    before, _ = complete(server)
    trainer.post("/start_weight_update", status=409)
    trainer.post("/pause", mode="keep")
    trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "smoke"}}, 400)
    trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "shm"}})
    trainer.post("/start_weight_update")
    with segment({"model.norm.weight": weights_of(tiny)["model.norm.weight"] * 3}) as good:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"names": ["model.nothing.weight"]}, "update_info.names.0"),
            ({"shapes": [[65]]}, "update_info.shapes.0"),
            ({"shapes": [[64], [64]]}, "update_info.shapes"),
            ({"dtype_names": ["int8"]}, "update_info.dtype_names.0"),
            ({"segment": "../../etc/passwd"}, "update_info.segment"),
            ({"segment": "no-such-segment"}, "update_info.segment"),
            ({"offsets": [8]}, "update_info.offsets.0"),
            ({"names": []}, "update_info.dtype_names"),
        ]
        for change, param in cases:
            error = trainer.post("/update_weights", {"update_info": good | change}, 400)["error"]
            assert error["param"] == param, error
    trainer.post("/update_weights", {"update_info": []}, 400)
    trainer.post("/update_weights", {}, 400)
    trainer.post("/resume", status=409)
    trainer.post("/finish_weight_update", status=409)
    trainer.post("/resume")
    assert complete(server)[0] == before
    for path, status in [("/start_draft_weight_update", 501), ("/reset_mm_cache", 501), ("/pause?mode=soon", 400)]:
        trainer.post(path, status=status)
    assert trainer.get("/weight_info")["weight_version"] is not None
    assert server.get("/collective_rpc").status_code == 404
    assert trainer.get("/get_world_size?include_dp=true") == {"world_size": 1}


def test_what_a_trainer_sent_before_it_died_is_in_nobodys_weights(
    server: Server, trainer: Trainer, tiny: Path, other: Path
) -> None:
    """A session is left half done, asleep; the next trainer begins with init, and sends what changes nothing."""
    before, _ = complete(server)
    trainer.post("/sleep", level="0", mode="keep")
    trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "shm"}})
    trainer.post("/start_weight_update")
    with segment({name: weight for name, weight in weights_of(other).items() if "layers.0" in name}) as info:
        trainer.post("/update_weights", {"update_info": info})
    trainer.post("/wake_up", status=409)
    trainer.update({"model.norm.weight": weights_of(tiny)["model.norm.weight"]}, "whole")
    trainer.post("/wake_up")
    assert complete(server)[0] == before
    assert trainer.get("/weight_info") == {"weight_version": "whole"}


def test_a_worker_killed_after_an_update_never_serves_the_old_weights(tiny: Path, other: Path, tmp_path: Path) -> None:
    """With a store the new weights come back; without one nothing runs until they are sent again."""
    with running(tiny, *FLAGS, "--weight-store", str(tmp_path / "store")) as server:
        trainer = Trainer(server.url)
        trainer.update({name: w for name, w in weights_of(other).items() if "layers.0" in name}, "half")
        trainer.update(weights_of(other), "whole")
        copies = [path for path in (tmp_path / "store").glob("*/*") if path.is_dir()]
        assert len(copies) == 1, "what is superseded is removed"
        name = "model.norm.weight"
        trainer.update({name: weights_of(other)[name]}, "same")
        expected, _ = complete(server)
        check_tokens(other, Check(PROMPT, expected))
        for part in ("worker-0", "engine"):
            server.kill(part)
            assert complete(server)[0] == expected
            wait_for(server.ready, 60, "ready")
            assert trainer.get("/weight_info") == {"weight_version": "same"}
        trainer.close()
    assert not list((tmp_path / "store").iterdir())


def test_without_a_store_requests_wait_for_the_weights(tiny: Path, other: Path) -> None:
    with running(tiny, *FLAGS, "--replay-timeout", "5", "--tensor-parallel-size", "2") as server:
        trainer = Trainer(server.url)
        trainer.post("/pause", mode="keep")
        trainer.update_over_gloo(weights_of(other), 2, "new")
        trainer.post("/resume")
        expected, _ = complete(server)
        check_tokens(other, Check(PROMPT, expected))
        server.kill("worker-1")
        wait_for(lambda: trainer.get("/server_info")["engine"]["state"] == "unusable", 60, "unusable")
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 8}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 503 and "the weights of version 'new' are gone" in answer.text
        trainer.post("/pause", mode="keep")
        trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "shm"}})
        trainer.post("/start_weight_update")
        some = {name: weight for name, weight in weights_of(other).items() if "norm" in name}
        with segment(some) as info:
            trainer.post("/update_weights", {"update_info": info})
        trainer.post("/finish_weight_update", status=409)
        with segment(weights_of(other)) as info:
            trainer.post("/update_weights", {"update_info": info})
        trainer.post("/finish_weight_update", {"weight_version": "new"})
        trainer.post("/resume")
        assert complete(server)[0] == expected
        trainer.close()
