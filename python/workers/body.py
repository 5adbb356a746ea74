"""What a worker process runs: the model side of the worker, free of sockets and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from octavo.wire.worker import (
        AllocateKv,
        Init,
        KvReady,
        ModelControl,
        ModelControlDone,
        Ready,
        SamplePlan,
        StepPlan,
        StepResult,
    )

__all__ = ["PendingStep", "WorkerBody"]


class PendingStep(Protocol):
    """A step that was launched and whose result is to come."""

    @property
    def step(self) -> int:
        """The plan's number."""
        ...

    def wait(self) -> StepResult:
        """Block until the result is there and return it. Called once, from any thread, in the order of steps."""
        ...


class WorkerBody(Protocol):
    """The synchronous body of a worker. It is constructed without arguments.

    All methods but `progress` run on the device thread, one at a time, in this order: `init` once, `allocate` once,
    then `step` for each plan in the order of plans, and `control` between them. An exception from `init` is reported
    as a Fault of kind "model", if it is a ModelError or ConfigError, and of kind "step" otherwise; after it the process
    exits.
    """

    def init(self, message: Init) -> Ready:
        """Build the model and load its weights; join the other ranks.

        Raises ModelError for files that cannot be served.
        """
        ...

    def allocate(self, message: AllocateKv) -> KvReady:
        """Allocate the KV pools. Called after `init`, before the first `step`."""
        ...

    def step(self, plan: StepPlan) -> StepResult | PendingStep | None:
        """Run one plan to its end and return its result, or launch it; None on ranks that do not report.

        A deferred plan is run up to its logits; `sample` comes next.
        """
        ...

    def sample(self, plan: SamplePlan) -> StepResult | PendingStep | None:
        """Let the rows of the deferred plan draw; otherwise as `step`."""
        ...

    def control(self, message: ModelControl) -> ModelControlDone:
        """Carry out an operation on the model. No step is under way. See workers/control.py."""
        ...

    def progress(self) -> tuple[str, int, int]:
        """Return (phase, step, layer) for the heartbeat: "loading", "idle" or "step", the plan's step, the layer.

        Called from the heartbeat thread at any time; it must not block or touch the device.
        """
        ...
