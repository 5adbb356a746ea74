"""What a step takes of a GPU's memory, by running the largest one, and what that leaves for the KV cache."""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.errors import ConfigError
from octavo.models.pooling import PoolingModel
from octavo.wire.worker import KvGroupAlloc
from octavo.workers.pooling.runner import PoolingRunner
from octavo.workers.rehearsal import run_steps
from octavo.workers.runner import Limits, Runner
from octavo.workers.warmup import BLOCK_TOKENS, blocks_needed, largest_step

if TYPE_CHECKING:
    from octavo.kernels.api import Kernels
    from octavo.models.base import Model
    from octavo.wire.worker import Init

__all__ = ["Profile", "profile"]

_log = logging.getLogger(__name__)

#: Bytes of each logit of a full batch: as the model gives them, widened, and for what a sampler makes of them.
_LOGIT_BYTES = 10
#: Recordings hold launches and a pool of activations of their own.
_GRAPH_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Profile:
    """The memory of one GPU, in bytes."""

    total: int
    used: int  # before a step: weights, the CUDA context, other processes
    step: int  # most that a step takes besides, recordings included
    for_kv: int  # what `memory_utilization` of the total leaves; negative: so much is missing


def profile(model: Model, kernels: Kernels, init: Init) -> Profile:
    """Run the largest step that the limits allow and return what there is.

    Raises ConfigError if it does not fit.
    """
    device, started = init.device, time.monotonic()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        caches = _run(model, kernels, init)
    except torch.OutOfMemoryError:
        total = torch.cuda.get_device_properties(device).total_memory
        raise ConfigError(
            f"a step of {init.max_num_batched_tokens} tokens does not fit into what the weights leave of the GPU's "
            f"{total / 2**30:.1f} GiB; lower --max-num-batched-tokens, or share the model with --tensor-parallel-size",
            "max_num_batched_tokens",
        ) from None
    peak = torch.cuda.max_memory_allocated(device) - before - caches
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    step = peak + init.max_num_seqs * model.vocab_size * _LOGIT_BYTES
    step += 0 if init.graph_sizes == () or kernels.replay is None else _GRAPH_BYTES
    used = total - free
    found = Profile(total, used, step, int(init.memory_utilization * total) - used - step)
    _log.info(
        "GPU memory: %.1f GiB, in use %.1f, a step %.1f; KV cache %.1f; measured in %.1f s",
        *(value / 2**30 for value in (found.total, found.used, found.step, found.for_kv)),
        time.monotonic() - started,
    )
    return found


def _run(model: Model, kernels: Kernels, init: Init) -> int:
    """Run the largest step, then small ones; return the bytes of their KV cache, which is gone then."""
    sizes = init.max_num_batched_tokens, init.max_num_seqs, init.max_model_len
    layers = tuple(spec.layer for spec in model.kv_specs())
    group = KvGroupAlloc(0, BLOCK_TOKENS, blocks_needed(*sizes), layers)
    limits = Limits(init.max_num_seqs, init.max_model_len)
    if init.pooling is not None:
        assert isinstance(model, PoolingModel)
        runner: Runner = PoolingRunner(model, kernels, limits, (group,), init.device, init.pooling)
        runner.step(largest_step(*sizes))
    else:
        runner = Runner(model, kernels, limits, (group,), init.device, graph_sizes=())
        run_steps(runner, sizes)
    torch.cuda.synchronize(init.device)
    return runner.cache_bytes
