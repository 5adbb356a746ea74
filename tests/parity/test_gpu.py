"""Tiny random models on a GPU against Transformers, through the real engine core.

In bf16, Transformers runs on the same GPU, and weights are smaller. Random layers with large weights amplify what
rounding does: two runs of Transformers itself, on a CPU and on an H200, then differ by an ulp of the largest logit in
the mean and choose tokens up to 5 ulps apart, where two are allowed (docs/gpu.md). With STEADY weights the mean is
0.3 to 0.5, and a layer left out still shows in every family (test_power.py).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

from octavo.wire.worker import StepResult
from tests.families import FAMILIES, make_model
from tests.parity.asks import mixed
from tests.parity.engine import Engine, EngineSetup, serve
from tests.parity.processes import WorkerProcess, WorkerProcesses
from tests.parity.test_tensor_parallel import VARIANTS as RANKS
from tests.teacher import check_requests
from tests.tiny import make_llama

if TYPE_CHECKING:
    from pathlib import Path

    from octavo.wire.worker import StepPlan

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.timeout(300),
]

#: What models of each dtype have besides their sizes, and where Transformers runs.
STEADY: dict[str, dict[str, Any]] = {"float32": {}, "bfloat16": {"initializer_range": 0.1}}
REFERENCE = {"float32": "cpu", "bfloat16": "cuda:0"}
#: Norms of queries and keys make attention as sharp whatever the weights are, and what it rounds goes through them.
CALM = {"initializer_range": 0.05}
GPU = EngineSetup(600, device="cuda:0", graph_sizes=(1, 2, 4, 16))
VARIANTS = {
    "graphs": {},
    "two_in_flight": {"window": 2},
    "three_in_flight": {"window": 3},
    "eager": {"graph_sizes": ()},
    "eager_two_in_flight": {"graph_sizes": (), "window": 2},
    "chunks": {"budget": 16, "window": 2},
    "chunks_eager": {"budget": 16, "window": 2, "graph_sizes": ()},
    "preemption": {"num_blocks": 40, "block_tokens": 8, "window": 2},
}
HEADS = {"head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
#: Sizes that products of some rows split their columns for (kernels/triton/skinny.py); the larger, the smaller weights.
WIDER = {"hidden_size": 512, "intermediate_size": 768}
WIDER_RANGE = {"float32": 0.15, "bfloat16": 0.035}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_a_variant(tmp_path: Path, family: str, variant: str, dtype: str) -> None:
    own = family == "llama"
    settings = STEADY[dtype] | (CALM if (family, dtype) == ("qwen3", "bfloat16") else {})
    model = make_llama(tmp_path, **settings) if own else make_model(tmp_path, FAMILIES[family], **settings)
    setup = dataclasses.replace(GPU, dtype=dtype, **VARIANTS[variant])
    engine, served = serve(model, setup, mixed(288, 48, 48, 120) if own else mixed(288, 24, 32, 80))
    assert sum(seen.cached > 0 for seen in served) >= (0 if variant == "preemption" else 8 if own else 4)
    assert not variant.startswith("chunks") or engine.chunked > (48 if own else 12)
    assert variant != "preemption" or engine.stats().preemptions > (5 if own else 0)
    check_requests(model, [seen.check() for seen in served], dtype, REFERENCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_wide_heads_and_contexts_beyond_a_graphs_bound(tmp_path: Path, dtype: str) -> None:
    settings = {**HEADS, **WIDER, "initializer_range": WIDER_RANGE[dtype]}
    model = make_llama(tmp_path, max_position_embeddings=2048, **settings)
    setup = dataclasses.replace(GPU, num_blocks=1500, budget=1024, max_model_len=2048, dtype=dtype, window=2)
    _, served = serve(model, setup, mixed(288, 16, 40, 1100, draws=False))
    check_requests(model, [seen.check() for seen in served], dtype, REFERENCE[dtype])


def test_schedules_change_no_token(tmp_path: Path) -> None:
    """In fp32, the same requests with and without graphs, alone, in chunks and preempted give the same tokens."""
    model = make_llama(tmp_path)
    changes = [{}, {"graph_sizes": ()}, {"window": 2}, {"max_num_seqs": 1, "window": 2}, {"budget": 16}]
    changes.append({"num_blocks": 30, "block_tokens": 4, "max_model_len": 112, "window": 2})
    asks = mixed(288, 16, 32, 60)
    outputs = [
        [seen.tokens for seen in serve(model, dataclasses.replace(GPU, **change), asks)[1]] for change in changes
    ]
    for other in outputs[1:]:
        assert other == outputs[0]


#: Steps of 64 tokens have sums of a size that goes through peer memory (workers/peer_group.py).
WIDE = {"hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 8, "head_dim": 32, "initializer_range": 0.1}
#: In bf16 a router's near ties fall either way, after which logits have nothing in common.
MOE = ("mixtral", "qwen3_moe")
CASES = [(name, "float32") for name in FAMILIES] + [(name, "bfloat16") for name in FAMILIES if name not in MOE]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_family(tmp_path: Path, name: str, dtype: str) -> None:
    """Recorded steps, chunks and prefix hits, two plans in flight."""
    model = make_model(tmp_path, FAMILIES[name], **STEADY[dtype])
    setup = dataclasses.replace(GPU, dtype=dtype, budget=40, window=2)
    engine, served = serve(model, setup, mixed(288, 24, 32, 80))
    assert engine.chunked > 5
    assert sum(seen.cached > 0 for seen in served) >= 4
    check_requests(model, [seen.check() for seen in served], dtype, REFERENCE[dtype])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", [*RANKS, "wide"])
@pytest.mark.parametrize("sizes", [None, ()], ids=["graphs", "eager"])
def test_two_ranks(tmp_path: Path, variant: str, dtype: str, sizes: tuple[int, ...] | None) -> None:
    """Collectives over NCCL, in recorded steps and in others."""
    model = make_llama(tmp_path, **{**STEADY[dtype], **(WIDE if variant == "wide" else RANKS[variant])})
    setup = dataclasses.replace(GPU, dtype=dtype, budget=64, graph_sizes=sizes)
    with WorkerProcesses(2) as processes:
        served = Engine(model, setup, processes).run(mixed(288, 24, 32, 60))
        assert processes.shutdown() == [0, 0]
    check_requests(model, [seen.check() for seen in served], dtype, REFERENCE[dtype])


class Behind:
    """One worker process whose results are waited for after the next plan was sent."""

    def __init__(self, processes: WorkerProcesses) -> None:
        self.init, self.allocate = processes.init, processes.allocate
        self._worker = processes.ranks[0]

    def step(self, plan: StepPlan) -> Sent:
        self._worker.send(plan)
        return Sent(plan.step, self._worker)


@dataclasses.dataclass
class Sent:
    """A plan that was sent."""

    step: int
    worker: WorkerProcess

    def wait(self) -> StepResult:
        result = self.worker.expect(StepResult)
        assert result.step == self.step
        return result


def test_a_worker_process_takes_plans_while_it_runs_others(tmp_path: Path) -> None:
    model = make_llama(tmp_path, **STEADY["bfloat16"])
    setup = dataclasses.replace(GPU, window=2, dtype="bfloat16")
    with WorkerProcesses(1) as processes:
        served = Engine(model, setup, Behind(processes)).run(mixed(288, 24, 48, 120))
        assert processes.shutdown() == [0]
    check_requests(model, [seen.check() for seen in served], "bfloat16", REFERENCE["bfloat16"])
