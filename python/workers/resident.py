"""What of a model is in memory: its weights, its runner with the KV cache; and how they come and go."""

from __future__ import annotations

import dataclasses
import gc
from typing import TYPE_CHECKING

import torch

from octavo.models.base import build_model
from octavo.models.pooling import PoolingModel, build_pooling_model
from octavo.workers.heap import trim_heap
from octavo.workers.loading.load import load_weights
from octavo.workers.pooling.runner import PoolingRunner
from octavo.workers.runner import Limits, Runner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.layers.base import Build
    from octavo.layers.batch import Progress
    from octavo.modelfiles import ModelFiles
    from octavo.models.base import Model
    from octavo.wire.worker import AllocateKv, Init

__all__ = ["ResidentModel"]

_WEIGHTS, _KV_CACHE = "weights", "kv_cache"


class ResidentModel:
    """Owns the model and its runner. There is a runner exactly when KV is allocated and nothing sleeps."""

    def __init__(self, init: Init, files: ModelFiles, build: Build, progress: Progress, show: bool) -> None:
        """Load the weights that `init` names. `show`: this rank reports how far it is.

        Raises ModelError for files that cannot be served.
        """
        self._init = init
        self._files = files
        self._build = build
        self._progress = progress
        self._show = show
        self._asleep: set[str] = set()
        self._on_host: Model | None = None  # the weights while they sleep, on a device with memory of its own
        self._kv: AllocateKv | None = None
        self.runner: Runner | None = None
        self.model: Model | None = self._load(init.overlays)
        self.weight_key = init.weight_key

    def allocate(self, message: AllocateKv) -> Runner:
        """Allocate the KV cache and record steps."""
        self._kv = message
        runner = self._make_runner()
        assert runner is not None
        return runner

    def copy(self) -> Model:
        """Return another model with the same weights, not finished. There is a model."""
        assert self.model is not None
        copy = self._blank(self._build)
        copy.adopt_all(self.model)
        return copy

    def replace(self, model: Model, key: str) -> None:
        """Serve another model of the same config from the next step on."""
        self.model, self.weight_key = model, key
        if self.runner is not None:
            self.runner.use(model)
        self._collect()

    def sleep(self, tags: Iterable[str], drop: bool) -> None:
        """Free the KV cache, and the weights: to the host's memory, or, with `drop`, for good. Idempotent."""
        self._asleep |= set(tags)
        self.runner = None
        if _WEIGHTS in self._asleep:
            if drop:
                self.model = self._on_host = None
            elif self.model is not None and self._build.device != "cpu":
                self._on_host = self._blank(dataclasses.replace(self._build, device="cpu"))
                self._on_host.adopt_all(self.model)
                self.model = None
        self._collect()

    def wake(self, tags: Iterable[str], key: str, overlays: tuple[str, ...]) -> None:
        """Bring back what sleeps. Weights that were dropped are loaded again: `overlays` are those of `key`."""
        self._asleep -= set(tags)
        if _WEIGHTS not in self._asleep and self.model is None:
            if self._on_host is None:
                self.model, self.weight_key = self._load(overlays), key
            else:
                self.model = self._blank(self._build)
                self.model.adopt_all(self._on_host)
                for _, layer in self.model.walk():
                    layer.finish()
                self._on_host = None
        if not self._asleep and self.runner is None:
            self._make_runner()

    def _make_runner(self) -> Runner | None:
        if self._kv is None or self.model is None:
            return None
        init = self._init
        limits = Limits(init.max_num_seqs, init.max_model_len, init.max_num_batched_tokens, init.logprobs_mode)
        kernels, groups = self._build.kernels, self._kv.groups
        if init.pooling is not None:
            assert isinstance(self.model, PoolingModel)
            self.runner = PoolingRunner(
                self.model, kernels, limits, groups, init.device, init.pooling, progress=self._progress
            )
            return self.runner
        self.runner = Runner(
            self.model, kernels, limits, groups, init.device, init.graph_sizes, progress=self._progress
        )
        return self.runner

    def _blank(self, build: Build) -> Model:
        """Return the model with weights that are nothing yet."""
        architecture, config, plan = self._files.architecture, self._files.config, self._init.pooling
        if plan is not None:
            return build_pooling_model(architecture, config, build, plan)
        return build_model(architecture, config, build)

    def _load(self, overlays: tuple[str, ...]) -> Model:
        model = self._blank(self._build)
        load_weights(
            model, self._files, self._init.seed, self._progress, self._init.device, show=self._show, overlays=overlays
        )
        return model

    def _collect(self) -> None:
        """Give memory that nothing refers to any more back to the system."""
        gc.collect()
        if self._build.device != "cpu":
            torch.cuda.empty_cache()
        trim_heap()
