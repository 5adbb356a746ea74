"""The body of a worker that runs a model."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import torch

from octavo.errors import ProtocolError
from octavo.kernels.select import select
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.modelfiles import resolve
from octavo.models.base import build_model
from octavo.wire.worker import KvReady, Ready, StepResult
from octavo.workers.distributed import join
from octavo.workers.loading.load import load_weights
from octavo.workers.memory import free_bytes
from octavo.workers.runner import Limits, Runner
from octavo.workers.threads import choose_threads

if TYPE_CHECKING:
    from octavo.kernels.api import Kernels
    from octavo.models.base import Model
    from octavo.wire.worker import AllocateKv, Init, StepPlan
    from octavo.workers.body import WorkerBody

__all__ = ["OUTPUT_RANK", "ModelBody"]

_log = logging.getLogger(__name__)

#: The rank that reports. All ranks draw the same tokens, from the same gathered logits.
OUTPUT_RANK = 0


class ModelBody:
    """Loads a model and steps it. See WorkerBody."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._init: Init | None = None
        self._model: Model | None = None
        self._kernels: Kernels | None = None
        self._runner: Runner | None = None

    def init(self, message: Init) -> Ready:
        started = time.monotonic()
        torch.set_grad_enabled(False)
        torch.set_num_threads(choose_threads(message.threads, message.world_size))
        files = resolve(message.model, message.load_format)
        kernels = select(message.device, message.dtype)
        dtype: torch.dtype = getattr(torch, message.dtype)
        build = Build(kernels, join(message), dtype, message.device, message.max_model_len)
        model = build_model(files.architecture, files.config, build)
        load_weights(model, files, message.seed, self._progress)
        self._init, self._model, self._kernels = message, model, kernels
        self._progress.phase = "idle"
        ready = Ready(
            rank=message.rank,
            vocab_size=model.vocab_size,
            kv_specs=model.kv_specs(),
            free_bytes=free_bytes(),
            weight_bytes=model.weight_bytes(),
            load_ms=round((time.monotonic() - started) * 1000),
        )
        _log.info(
            "%s: %.0f MB of weights in %s loaded in %.1f s; %d threads",
            files.architecture,
            ready.weight_bytes / 1e6,
            message.dtype,
            ready.load_ms / 1000,
            torch.get_num_threads(),
        )
        return ready

    def allocate(self, message: AllocateKv) -> KvReady:
        if self._init is None or self._model is None or self._kernels is None:
            raise ProtocolError("AllocateKv came before Init")
        limits = Limits(self._init.max_num_seqs, self._init.max_model_len)
        self._runner = Runner(self._model, self._kernels, limits, message.groups, self._init.device)
        self._progress = self._runner.progress
        self._progress.phase = "idle"
        return KvReady(self._init.rank, self._runner.cache_bytes)

    def step(self, plan: StepPlan) -> StepResult | None:
        if self._init is None or self._runner is None:
            raise ProtocolError(f"step {plan.step} came before AllocateKv")
        started = time.perf_counter()
        self._progress.step, self._progress.layer, self._progress.phase = plan.step, 0, "step"
        drawn = self._runner.step(plan)
        result = None
        if self._init.rank == OUTPUT_RANK:
            result = StepResult(
                step=plan.step,
                slots=drawn.slots.astype("<i4").tobytes(),
                generations=drawn.generations.astype("<i4").tobytes(),
                lengths=b"\x01\x00\x00\x00" * len(drawn.slots),
                tokens=drawn.tokens.numpy(force=True).astype("<i4").tobytes(),
                compute_us=round((time.perf_counter() - started) * 1e6),
            )
        self._progress.phase = "idle"
        return result

    def progress(self) -> tuple[str, int, int]:
        now = self._progress
        return now.phase, now.step, now.layer


def _conforms(body: ModelBody) -> WorkerBody:
    return body
