"""The body of a worker that runs a model."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec
import torch

from octavo.devices import choose_threads
from octavo.errors import ConfigError, ProtocolError
from octavo.kernels.select import select
from octavo.layers.base import Build
from octavo.layers.batch import Progress
from octavo.modelfiles import resolve
from octavo.wire.frontend import Pooled
from octavo.wire.worker import KvReady, Ready, RowLogprobs, RowPooled, StepResult
from octavo.workers.control import ModelControls
from octavo.workers.distributed import join, join_experts
from octavo.workers.memory import device_free_bytes
from octavo.workers.profiling import profile
from octavo.workers.rehearsal import rehearsing
from octavo.workers.resident import ResidentModel
from octavo.workers.sampling.logprobs import unpack
from octavo.workers.transfer import Download
from octavo.workers.weight_transfer.backend import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octavo.layers.exchange import Exchange
    from octavo.wire.worker import AllocateKv, Init, ModelControl, ModelControlDone, SamplePlan, StepPlan
    from octavo.workers.body import WorkerBody
    from octavo.workers.runner import Drawn, Runner

__all__ = ["OUTPUT_RANK", "LaunchedStep", "ModelBody"]

_log = logging.getLogger(__name__)

#: The rank that reports. All ranks draw the same tokens, from the same gathered logits.
OUTPUT_RANK = 0


class LaunchedStep:
    """A step whose tokens are on their way to the host. `ended` is called with its number when they are there."""

    def __init__(
        self,
        step: int,
        drawn: Drawn,
        started: float,
        ended: Callable[[int], None],
        generation: Callable[[int], int],
        unfinished: bool | None = None,
    ) -> None:
        self.step = step
        self._ended = ended
        self._slots, self._generations = drawn.slots, drawn.generations
        self._unfinished = unfinished
        self._tokens = Download(drawn.tokens)
        self._logprobs = [(packed.owners, Download(packed.values)) for packed in drawn.logprobs]
        # Now: the slot may have another owner when the result is there.
        self._prompt = [
            (packed.owners[0], generation(packed.owners[0]), Download(packed.values))
            for packed in drawn.prompt_logprobs
        ]
        self._pooled = None if drawn.pooled is None else (drawn.pooled.shapes, Download(drawn.pooled.values))
        self._started = started

    @property
    def immediate(self) -> bool:
        """Whether `wait` does not wait."""
        return self._tokens.immediate and (self._pooled is None or self._pooled[1].immediate)

    def wait(self) -> StepResult:
        """Return the result, once the device has come so far."""
        tokens = self._tokens.wait()
        self._ended(self.step)
        return StepResult(
            step=self.step,
            slots=self._slots.astype("<i4").tobytes(),
            generations=self._generations.astype("<i4").tobytes(),
            lengths=(b"\x01" if self._pooled is None else b"\x00").ljust(4, b"\x00") * len(self._slots),
            tokens=tokens.astype("<i4").tobytes(),
            compute_us=round((time.perf_counter() - self._started) * 1e6),
            logprobs=tuple(self._rows()) if self._logprobs else (),
            prompt_logprobs=tuple(
                RowLogprobs(slot, generation, unpack(values.wait())) for slot, generation, values in self._prompt
            ),
            pooled=tuple(self._vectors()),
            unfinished=self._unfinished,
        )

    def _vectors(self) -> Iterator[RowPooled]:
        if self._pooled is None:
            return
        shapes, download = self._pooled
        values, begin = download.wait(), 0
        for row, (count, width) in enumerate(shapes):
            part = values[begin : begin + count * width].astype("<f4").tobytes()
            begin += count * width
            yield RowPooled(int(self._slots[row]), int(self._generations[row]), Pooled(width, part))

    def _rows(self) -> Iterator[RowLogprobs]:
        for owners, download in self._logprobs:
            values = download.wait()
            for row, owner in enumerate(owners):
                slot, generation = int(self._slots[owner]), int(self._generations[owner])
                yield RowLogprobs(slot, generation, unpack(values[row : row + 1]))


class ModelBody:
    """Loads a model and steps it. See WorkerBody."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._ended = 0  # the last step whose end was seen
        self._started = 0.0  # of the step that was begun last
        self._init: Init | None = None
        self._resident: ResidentModel | None = None
        self._controls: ModelControls | None = None
        self._exchange: Exchange | None = None
        self._unfinished: bool | None = None  # of the last plan: whether any expert rank has work, where it asked

    def init(self, message: Init) -> Ready:
        try:
            return self._load(message)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"the weights do not fit into the memory of {message.device}: {_first_line(error)}; free it of other "
                "programs, or share the model among more GPUs with --tensor-parallel-size",
                "tensor_parallel_size",
            ) from None

    def _load(self, message: Init) -> Ready:
        started = time.monotonic()
        torch.set_grad_enabled(False)
        torch.set_num_threads(choose_threads(message.threads, message.world_size))
        if message.device.startswith("cuda"):
            torch.cuda.set_device(message.device)
        overrides = msgspec.json.decode(message.hf_overrides) if message.hf_overrides else None
        files = resolve(message.model, message.load_format, overrides)
        kernels = select(message.device, message.dtype)
        dtype: torch.dtype = getattr(torch, message.dtype)
        self._exchange = join_experts(message)
        build = Build(kernels, join(message), dtype, message.device, message.max_model_len, exchange=self._exchange)
        show = message.rank == OUTPUT_RANK
        with rehearsing(files, build, message):
            self._resident = ResidentModel(message, files, build, self._progress, show)
        self._controls = ModelControls(
            self._resident, Place(message.rank, message.world_size, message.device), self._progress
        )
        self._init, model = message, self._resident.model
        assert model is not None
        loaded_ms = round((time.monotonic() - started) * 1000)
        memory = None
        if message.device.startswith("cuda") and message.memory_utilization and model.kv_specs():
            memory = profile(model, kernels, message)
        self._progress.phase = "idle"
        ready = Ready(
            rank=message.rank,
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            kv_specs=model.kv_specs(),
            free_bytes=device_free_bytes(message.device),
            weight_bytes=model.weight_bytes(),
            load_ms=loaded_ms,
            total_bytes=memory.total if memory else 0,
            step_bytes=memory.step if memory else 0,
            kv_bytes=memory.for_kv if memory else 0,
            weight_key=self._resident.weight_key,
        )
        _log.info(
            "%s: %.0f MB of weights in %s loaded in %.1f s",
            files.architecture,
            ready.weight_bytes / 1e6,
            message.dtype,
            ready.load_ms / 1000,
        )
        return ready

    def allocate(self, message: AllocateKv) -> KvReady:
        if self._init is None or self._resident is None:
            raise ProtocolError("AllocateKv came before Init")
        init = self._init
        started = time.monotonic()
        self._progress.phase = "loading"
        try:
            runner = self._resident.allocate(message)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"the KV cache or the recorded steps do not fit into the memory of {init.device}: "
                f"{_first_line(error)}; lower --kv-cache-memory-bytes or --gpu-memory-utilization",
                "gpu_memory_utilization",
            ) from None
        self._progress.layer = 0
        seconds = time.monotonic() - started
        _log.info("KV cache of %.1f GiB made, steps recorded in %.1f s", runner.cache_bytes / 2**30, seconds)
        self._progress.phase = "idle"
        return KvReady(init.rank, runner.cache_bytes)

    def control(self, message: ModelControl) -> ModelControlDone:
        if self._controls is None:
            raise ProtocolError(f"{message.op} came before Init")
        return self._controls.run(message)

    def step(self, plan: StepPlan) -> StepResult | LaunchedStep | None:
        runner = self._runner(plan.step)
        self._started = time.perf_counter()
        self._progress.step, self._progress.layer, self._progress.phase = plan.step, 0, "step"
        self._unfinished = self._agreed(plan)
        drawn = runner.step(plan)
        return None if drawn is None else self._launched(plan.step, drawn)

    def sample(self, plan: SamplePlan) -> StepResult | LaunchedStep | None:
        return self._launched(plan.step, self._runner(plan.step).sample(plan))

    def _agreed(self, plan: StepPlan) -> bool | None:
        if plan.unfinished is None:
            return None
        if self._exchange is None:
            raise ProtocolError(f"step {plan.step} asks ranks of other engine cores, and there are none")
        return self._exchange.any(plan.unfinished)

    def _launched(self, step: int, drawn: Drawn) -> StepResult | LaunchedStep | None:
        if self._init is None or self._init.rank != OUTPUT_RANK:
            self._end(step)
            return None
        generation, unfinished = self._runner(step).generation, self._unfinished
        launched = LaunchedStep(step, drawn, self._started, self._end, generation, unfinished)
        return launched.wait() if launched.immediate else launched

    def progress(self) -> tuple[str, int, int]:
        now = self._progress
        phase = "idle" if now.phase == "step" and now.step == self._ended else now.phase
        return phase, now.step, now.layer

    def _runner(self, step: int) -> Runner:
        runner = None if self._resident is None else self._resident.runner
        if runner is None:
            raise ProtocolError(f"step {step} came while there is no KV cache: before AllocateKv, or in a sleep")
        return runner

    def _end(self, step: int) -> None:
        self._ended = step


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". GPU")[0]


def _conforms(body: ModelBody) -> WorkerBody:
    return body
