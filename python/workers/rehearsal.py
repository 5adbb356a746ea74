"""A start's steps on a model of few layers, beside the loading of weights: their kernels are compiled meanwhile."""

from __future__ import annotations

import dataclasses
import gc
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from octavo.errors import ModelError
from octavo.layers.parallel import SingleGroup
from octavo.models.base import build_model
from octavo.wire.worker import KvGroupAlloc
from octavo.workers.runner import Limits, Runner
from octavo.workers.warmup import BLOCK_TOKENS, blocks_needed, largest_step, small_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch import Tensor

    from octavo.kernels.api import ReplayOps
    from octavo.layers.base import Build
    from octavo.modelfiles import ModelFiles
    from octavo.wire.worker import Init

__all__ = ["few_layers", "rehearsing", "run_steps"]

_log = logging.getLogger(__name__)

#: Layers that are enough where a config does not list their kinds: the last computes other tokens than those before.
_FEW = 2
#: Tokens of a rehearsed step, at most: memory beside the weights that are being loaded.
_TOKENS = 32768


class _SilentGroup:
    """The shape of a group without its ranks: what they would add is missing."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def all_reduce(self, x: Tensor) -> Tensor:  # any shape -> the same
        return x

    def all_gather(self, x: Tensor) -> Tensor:  # [R, n] -> [R, n * size]
        return x.repeat(1, self.size)


@contextmanager
def rehearsing(files: ModelFiles, build: Build, init: Init) -> Iterator[None]:
    """Rehearse in a thread while the caller does something else; leaving waits. Does nothing where nothing is compiled.

    A rehearsal that fails is told in the log: steps compile what they need.
    """
    replay = build.kernels.replay
    if replay is None or init.pooling is not None or build.exchange is not None:
        yield
        return
    with ThreadPoolExecutor(1, "rehearsal") as thread:
        done = thread.submit(_rehearse, files, build, init, replay)
        yield
        done.result()
    if build.device.startswith("cuda"):
        torch.cuda.empty_cache()


def few_layers(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a model with fewer layers, and still one of each kind."""
    total = config.get("num_hidden_layers", _FEW)
    kinds = config.get("layer_types")
    if kinds:
        count = min(total, max(_FEW, *(kinds.index(kind) + 1 for kind in set(kinds))))
        return config | {"num_hidden_layers": count, "layer_types": kinds[:count]}
    return config | {"num_hidden_layers": min(total, config.get("sliding_window_pattern") or _FEW)}


def run_steps(runner: Runner, sizes: tuple[int, int, int]) -> None:
    """Run the largest step, then small ones. `sizes`: tokens and rows of a step, tokens of a row."""
    runner.step(largest_step(*sizes))
    for plan in small_steps(*sizes):
        runner.step(plan)


def _rehearse(files: ModelFiles, build: Build, init: Init, replay: ReplayOps) -> None:
    started = time.monotonic()
    torch.set_grad_enabled(False)  # of this thread
    if build.device.startswith("cuda"):
        torch.cuda.set_device(build.device)
    try:
        compiled = replay.rehearse(lambda: _steps(files, build, init), init.threads, whole=build.group.size == 1)
    except (ModelError, RuntimeError) as error:  # among them torch.OutOfMemoryError
        _log.warning("kernels are compiled one by one, because: %s", str(error).partition("\n")[0])
        return
    finally:
        gc.collect()
    seconds = time.monotonic() - started
    _log.info("steps rehearsed beside the weights in %.1f s; %d kernels compiled", seconds, compiled)


def _steps(files: ModelFiles, build: Build, init: Init) -> None:
    group = SingleGroup() if build.group.size == 1 else _SilentGroup(build.group.rank, build.group.size)
    model = build_model(files.architecture, few_layers(files.config), dataclasses.replace(build, group=group))
    for _, layer in model.walk():
        layer.finish()
    sizes = min(init.max_num_batched_tokens, _TOKENS), init.max_num_seqs, init.max_model_len
    layers = tuple(spec.layer for spec in model.kv_specs())
    groups = (KvGroupAlloc(0, BLOCK_TOKENS, blocks_needed(*sizes), layers),)
    limits = Limits(init.max_num_seqs, init.max_model_len, init.max_num_batched_tokens, init.logprobs_mode)
    run_steps(Runner(model, build.kernels, limits, groups, build.device, graph_sizes=()), sizes)
    if init.graph_sizes != ():
        Runner(model, build.kernels, limits, groups, build.device, init.graph_sizes)
