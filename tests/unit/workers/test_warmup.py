"""The steps of the start, carried out by a runner on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo.kernels.select import reference
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.layers.parallel import SingleGroup
from octavo.modelfiles import resolve
from octavo.models.base import build_model
from octavo.wire.worker import KvGroupAlloc
from octavo.workers.loading.load import load_weights
from octavo.workers.runner import Limits, Runner
from octavo.workers.warmup import BLOCK_TOKENS, blocks_needed, largest_step, small_steps
from tests.tiny import make_llama


@pytest.mark.parametrize(
    ("tokens", "rows", "context", "steps"),
    [(1500, 4, 1024, 5), (1500, 2, 1024, 1), (64, 4, 1024, 1), (1500, 4, 300, 1), (100000, 3, 1024, 5)],
)
def test_a_runner_carries_them_out(tmp_path: Path, tokens: int, rows: int, context: int, steps: int) -> None:
    files = resolve(str(make_llama(tmp_path, num_hidden_layers=1, max_position_embeddings=context)))
    build = Build(reference(), SingleGroup(), torch.float32, "cpu", context)
    model = build_model(files.architecture, files.config, build)
    load_weights(model, files, 0, Progress())
    blocks = blocks_needed(tokens, rows, context)
    group = KvGroupAlloc(0, BLOCK_TOKENS, blocks, (0,))
    runner = Runner(model, reference(), Limits(rows, context), (group,), "cpu")
    plan = largest_step(tokens, rows, context)
    drawn = runner.step(plan)
    assert len(drawn.slots) == len(plan.new) == min(rows, -(-tokens // (context - 1)))
    done = 1
    for plan in small_steps(tokens, rows, context):
        runner.step(plan)
        runner.check()
        done += 1
    assert done == steps
