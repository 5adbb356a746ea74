"""A trainer's cycles over both doors: pause in mid-stream, other weights, resume; and what a sleep gives back.

OCTAVO_RL_CYCLES and OCTAVO_RL_STREAMS make more of it: `OCTAVO_RL_CYCLES=50 OCTAVO_RL_STREAMS=16`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import httpx
import psutil
import pytest
import torch

from octavo.client import Client, shared_weights
from tests.e2e.rl_stream import PROMPT, GrpcStream, HttpStream, RlStream
from tests.e2e.server import Server, running, wait_for
from tests.e2e.trainer import Trainer, segment, weights_of
from tests.tiny import make_llama

CYCLES, STREAMS = int(os.environ.get("OCTAVO_RL_CYCLES", "3")), int(os.environ.get("OCTAVO_RL_STREAMS", "2"))
TOKENS = 200
FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "64M", "--grpc-port", "0")
PARTS = ("frontend", "engine", "worker-0")
#: Weights of 6.7 MB, and a cache of 8 KB a token: what is not given back shows.
WIDE = {"intermediate_size": 4096, "num_key_value_heads": 4, "head_dim": 128}
WEIGHTS = 6_700_000
MB = 1 << 20


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one config."""
    return [make_llama(tmp_path_factory.mktemp(f"wide-{seed}"), seed=seed, **WIDE) for seed in range(2)]


@pytest.fixture(scope="module")
def world(models: list[Path]) -> Iterator[tuple[Server, str]]:
    """A server with both doors, and the address of gRPC."""
    with running(models[0], *FLAGS) as server:
        assert server.process.stdout is not None
        line = server.process.stdout.readline()
        _warm(server)
        yield server, line.rpartition("//")[2].strip()


def _warm(server: Server) -> None:
    """Write to all of the KV cache, whose pages take memory from then on, and fill what a worker keeps of kernels."""
    for first in (0, 11):
        complete(server, [[10 + row] * 416 for row in range(first, first + 11)])
    for length in range(1, 50):
        complete(server, [[length] * length], max_tokens=1)


def complete(server: Server, prompts: list[list[int]], max_tokens: int = 8) -> list[list[int]]:
    """Return what follows prompts that run together."""
    body = {"model": "tiny", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    answer = httpx.post(f"{server.url}/v1/completions", json={**body, "prompt": prompts}, timeout=60)
    return [choice["token_ids"] for choice in answer.json()["choices"]]


class Door(Protocol):
    """A way to the server."""

    def stream(self, prompt: list[int]) -> RlStream: ...
    def pause(self, mode: str) -> None: ...
    def update(self, weights: dict[str, torch.Tensor], version: str) -> None: ...
    def resume(self) -> None: ...
    def version(self) -> str: ...


class HttpDoor:
    def __init__(self, server: Server) -> None:
        self._server, self._trainer = server, Trainer(server.url)

    def close(self) -> None:
        self._trainer.close()

    def stream(self, prompt: list[int]) -> RlStream:
        return HttpStream(self._server, TOKENS, prompt)

    def pause(self, mode: str) -> None:
        self._trainer.post("/pause", mode=mode)
        assert self._trainer.get("/is_paused") == {"is_paused": True}

    def update(self, weights: dict[str, torch.Tensor], version: str) -> None:
        self._trainer.post("/init_weight_transfer_engine", {"init_info": {"backend": "shm"}})
        self._trainer.post("/start_weight_update")
        with segment(weights) as info:
            self._trainer.post("/update_weights", {"update_info": info})
        done = self._trainer.post("/finish_weight_update", {"weight_version": version})
        assert done["weight_version"] == version

    def resume(self) -> None:
        self._trainer.post("/resume")

    def version(self) -> str:
        return str(self._trainer.get("/weight_info")["weight_version"])


class GrpcDoor:
    def __init__(self, target: str) -> None:
        self._client = Client(target, timeout=60)

    def close(self) -> None:
        self._client.close()

    def stream(self, prompt: list[int]) -> RlStream:
        return GrpcStream(self._client, TOKENS, prompt)

    def pause(self, mode: str) -> None:
        self._client.pause(mode)
        assert self._client.is_paused()

    def update(self, weights: dict[str, torch.Tensor], version: str) -> None:
        with self._client.weight_update({"backend": "shm"}, version), shared_weights(weights) as info:
            self._client.update_weights(info)

    def resume(self) -> None:
        self._client.resume()

    def version(self) -> str:
        return self._client.weight_version()


def memory(server: Server) -> dict[str, int]:
    """What each part has for itself alone, in bytes, once it rests: when it has not become less for half a second."""
    processes = {part: psutil.Process(server.pid(part)) for part in PARTS}
    before = dict.fromkeys(PARTS, 0)
    still = 0
    while True:
        now = {part: process.memory_full_info().uss for part, process in processes.items()}
        still = 0 if any(now[part] < before[part] - MB // 4 for part in PARTS) else still + 1
        if still > 5:
            return now
        before = now
        time.sleep(0.1)


def test_steps_of_other_sizes_take_no_memory_for_good(world: tuple[Server, str]) -> None:
    """oneDNN makes kernels for each number of rows; without bounds 50 more of them stay with tens of megabytes."""
    server, _ = world
    before = memory(server)["worker-0"]
    for length in range(50, 100):
        complete(server, [[length] * length], max_tokens=1)
    grown = memory(server)["worker-0"] - before
    print(f"50 sizes: {grown / MB:.1f} MB more")
    assert grown < 12 * MB


@pytest.mark.timeout(60 + 60 * CYCLES)
@pytest.mark.parametrize("way", ["http", "grpc"])
def test_streams_go_on_under_other_weights(world: tuple[Server, str], models: list[Path], way: str) -> None:
    """No token is lost, each is its weights' choice, and memory stays flat. Every third pause waits for the streams."""
    server, target = world
    door = HttpDoor(server) if way == "http" else GrpcDoor(target)
    used = []
    for cycle in range(CYCLES):
        _cycle(door, models, cycle)
        wait_for(lambda: server.metric("octavo:num_requests_running") == 0, 20, "no running requests")
        used.append(memory(server))
    if CYCLES % 2:  # the next test begins with the first model
        door.pause("keep")
        door.update(weights_of(models[0]), "again")
        door.resume()
    door.close()
    print(f"{way}: MB after each cycle: {[{part: size >> 20 for part, size in sizes.items()} for sizes in used]}")
    early, late = used[: CYCLES // 2 + 1], used[CYCLES // 2 + 1 :]
    for part in PARTS:
        grown = max(sizes[part] for sizes in late) - max(sizes[part] for sizes in early)
        assert grown < WEIGHTS, f"{part} has {grown / MB:.1f} MB more after {len(late)} cycles"


def _cycle(door: Door, models: list[Path], cycle: int) -> None:
    first, then = models[cycle % 2], models[1 - cycle % 2]
    before, after = door.version(), f"cycle-{cycle}"
    streams = [door.stream([40 + number, *PROMPT]) for number in range(STREAMS)]
    for stream in streams:
        stream.reaches(3)
    waits = cycle % 3 == 2
    door.pause("wait" if waits else "keep")
    shown = [len(stream.tokens) for stream in streams]
    door.update(weights_of(then), after)
    door.resume()
    for stream, count in zip(streams, shown, strict=True):
        assert (len(stream.end()), stream.finish) == (TOKENS, "length")
        switch = stream.check(first, then, count)
        assert switch == TOKENS if waits else switch < TOKENS
        # Nothing is told of the checkpoint's own.
        assert stream.versions == ([before, after] if not waits else [before] if before != "0" else [])
    assert door.version() == after


def test_a_sleep_gives_memory_back_and_wakes_to_the_same(world: tuple[Server, str]) -> None:
    """Measured on a CPU: level 1 frees the KV cache, level 2 the weights too. (Of a GPU: test_gpu_sleep.py.)"""
    server, _ = world
    trainer = Trainer(server.url)

    def answers() -> list[list[int]]:
        """Fill 32 MB of the cache."""
        return complete(server, [[10 + row] * 400 for row in range(10)])

    def used() -> int:
        return memory(server)["worker-0"]

    before = answers()
    for level, least in (("1", 30 * MB), ("2", 30 * MB + WEIGHTS)):
        awake = used()
        trainer.post("/sleep", level=level)
        freed = awake - used()
        print(f"level {level}: {freed / MB:.1f} MB of {awake / MB:.1f} are free")
        assert freed >= least
        trainer.post("/wake_up")
        trainer.post("/resume")
        assert answers() == before
        assert used() - awake < 30 * MB, "less than the cache, which would be there twice"
    trainer.close()
