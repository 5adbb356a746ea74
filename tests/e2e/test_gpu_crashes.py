"""A GPU worker is killed under load, and runs out of memory: at start, and in the middle of streams."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch

from tests.e2e.server import Server, running, wait_for
from tests.e2e.test_crashes import STREAMS, Answer, ask, ask_under_fire, blocks_are_back, check_all
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(240),
]

FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "64M", "--max-num-seqs", "16")
FEW_GRAPHS = ("--cuda-graph-sizes", "1", "2", "4", "8", "16")
#: Left free by the program that takes the GPU's memory: less than the long prompt's step needs.
LEFT_BYTES = 128 << 20
LONG = 6000
#: What a GPU takes more than a second for. Of few requests none may differ literally, so they must not be longer.
TOKENS = 2000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose feed-forward layers take 0.8 GB for a prompt of LONG tokens."""
    return make_llama(tmp_path_factory.mktemp("wide"), intermediate_size=16384, max_position_embeddings=8192)


def test_streams_survive_a_kill_of_the_worker(tmp_path: Path) -> None:
    model = make_llama(tmp_path, max_position_embeddings=4096)
    with running(model, *FLAGS, *FEW_GRAPHS) as server:
        answers = ask_under_fire(server, "worker-0", max_tokens=TOKENS)
        assert server.get("/health").status_code == 200
        blocks_are_back(server)
    check_all(model, answers, TOKENS)


def test_streams_survive_a_step_without_memory(wide: Path) -> None:
    """Another program takes the memory that a step would need: the worker dies and comes back, nothing is lost."""
    torch.empty(1, device="cuda")  # a context takes a while
    with running(wide, *FLAGS, *FEW_GRAPHS, "--max-num-batched-tokens", "8192") as server:
        progress, first = threading.Semaphore(0), server.pid("worker-0")
        with ThreadPoolExecutor(STREAMS + 1) as pool:
            futures = [pool.submit(ask, server, index, progress, TOKENS) for index in range(STREAMS)]
            for _ in range(STREAMS):
                assert progress.acquire(timeout=60)
            assert not any(future.done() for future in futures)
            taken = _take_memory()
            long = pool.submit(_ask_long, server)
            wait_for(lambda: first not in server.pids("worker-0"), 60, "the end of the worker")
            del taken
            torch.cuda.empty_cache()
            answers: list[Answer] = [future.result(timeout=100) for future in futures]
            assert long.result(timeout=100) == 4
        assert "out of memory" in server.text()
        blocks_are_back(server)
    check_all(wide, answers, TOKENS)


def _take_memory() -> list[torch.Tensor]:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return [torch.empty(free - LEFT_BYTES, dtype=torch.uint8, device="cuda")]


def _ask_long(server: Server) -> int:
    answer = server.client().completions.create(
        model="tiny", prompt=[5 + at % 200 for at in range(LONG)], max_tokens=4, extra_body={"ignore_eos": True}
    )
    assert answer.usage is not None
    return answer.usage.completion_tokens


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--kv-cache-memory-bytes", "400G"), "--kv-cache-memory-bytes"),
        (("--gpu-memory-utilization", "0.001"), "--gpu-memory-utilization"),
        (("--max-num-batched-tokens", "100000000", "--max-num-seqs", "20000"), "--max-num-batched-tokens"),
    ],
)
def test_a_start_without_memory_says_which_flag_helps(wide: Path, flags: tuple[str, ...], told: str) -> None:
    command = [sys.executable, "-m", "octavo", "serve", str(wide), "--port", "0", "--dtype", "float32", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode not in (0, -9)
    last = done.stderr.strip().splitlines()[-1]
    assert told in last
    assert "Traceback" not in last
