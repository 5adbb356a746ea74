"""The desk: takes operations in order, carries out one at a time, answers questions at once."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from octavo.engine_core.control import scheduling, weights
from octavo.engine_core.control.operation import Ask, Until, boolean
from octavo.errors import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from octavo.engine_core.control.operation import Args, Context, Operation, Steps
    from octavo.wire.frontend import Control
    from octavo.wire.worker import ModelControlDone

__all__ = ["OPERATIONS", "QUESTIONS", "UNSUPPORTED", "ControlDesk"]

_log = logging.getLogger("octavo.engine_core")

#: What may wait, and comes one after the other.
OPERATIONS: Mapping[str, Operation] = {
    "pause": scheduling.pause,
    "resume": scheduling.resume,
    "sleep": scheduling.sleep,
    "wake_up": scheduling.wake_up,
    "init_weight_transfer_engine": weights.init,
    "start_weight_update": weights.start,
    "update_weights": weights.update,
    "finish_weight_update": weights.finish,
    "abort_weight_update": weights.abort,
}
#: These take the place of a pause, or sleep, that still waits for requests to end.
_OVERTAKE = ("pause", "resume", "sleep")


def _reset_prefix_cache(context: Context, args: Args) -> Args:
    context.host.reset_prefix_cache(boolean(args, "reset_running_requests", default=False))
    return {}


def _abort_requests(context: Context, args: Args) -> Args:
    try:
        names = msgspec.json.decode(args.get("request_ids", "[]"), type=list[str])
    except msgspec.DecodeError as error:
        raise ControlError(f"'request_ids' must be a list of strings: {error}", "invalid", "request_ids") from None
    return {"aborted": str(context.host.abort_requests(names))}


def _weight_info(context: Context, args: Args) -> Args:
    return {"weight_version": context.state.journal.weight_version}


#: What waits for nothing, not even for the operation before it.
QUESTIONS: Mapping[str, Callable[[Context, Args], Args]] = {
    "is_paused": lambda context, args: {"is_paused": str(context.state.is_paused).lower()},
    "is_sleeping": lambda context, args: {"is_sleeping": str(bool(context.state.asleep)).lower()},
    "weight_info": _weight_info,
    "update_weight_version": weights.rename,
    "server_info": lambda context, args: context.host.describe(),
    "reset_prefix_cache": _reset_prefix_cache,
    "abort_requests": _abort_requests,
}


#: What vLLM offers and octavo does not, with the reason.
UNSUPPORTED: Mapping[str, str] = {
    "start_draft_weight_update": "there is no draft model whose weights could be updated",
    "reset_mm_cache": "there is no cache of media that could be reset: this server takes text alone",
    "reset_encoder_cache": "there is no cache of an encoder that could be reset: this server takes text alone",
}


class Outside(Protocol):
    """Where answers and questions go. No method waits."""

    def control_done(
        self,
        id_: int,
        error: str | None = None,
        result: dict[str, str] | None = None,
        code: str = "",
        param: str | None = None,
    ) -> None:
        """Answer a Control."""
        ...

    def ask_workers(self, number: int, op: str, args: Args) -> int:
        """Send a ModelControl to all ranks and return how many they are; 0: they are not there."""
        ...


class ControlDesk:
    """Belongs to the engine's event loop. `turn` is called after every batch of messages."""

    def __init__(self, context: Context, outside: Outside) -> None:
        self._context = context
        self._outside = outside
        self._queue: deque[tuple[int | None, str, Args]] = deque()
        self._id: int | None = None  # of the Control being carried out; None: nobody waits for its answer
        self._steps: Steps | None = None
        self._wait: Until | Ask | None = None
        self._asked = 0  # number of the last question to the workers
        self._ranks = 0  # that were asked
        self._answers: dict[int, ModelControlDone] = {}

    @property
    def busy(self) -> bool:
        """Whether an operation is under way or waits."""
        return self._steps is not None or bool(self._queue)

    def take(self, message: Control) -> None:
        """Answer, or queue for the next `turn`."""
        question = QUESTIONS.get(message.op)
        if question is not None:
            try:
                self._outside.control_done(message.id, None, question(self._context, message.args))
            except ControlError as error:
                self._refuse(message.id, error)
        elif message.op in OPERATIONS:
            waits = self._context.state.draining is not None and isinstance(self._wait, Until)
            if message.op in _OVERTAKE and waits and self._steps is not None:
                self._steps.close()
                self._end(ControlError(f"{message.op} came before all requests had ended", "conflict"))
            self._queue.append((message.id, message.op, message.args))
        else:
            known = ", ".join([*OPERATIONS, *QUESTIONS, "shutdown"])
            text = UNSUPPORTED.get(message.op, f"unknown operation {message.op!r}; known are {known}")
            self._refuse(message.id, ControlError(text, "unsupported"))

    def turn(self) -> None:
        """Go on as far as possible. Never waits."""
        while True:
            if self._steps is None:
                if not self._queue:
                    return
                self._id, op, args = self._queue.popleft()
                operation = scheduling.sleep_again if op == "sleep_again" else OPERATIONS[op]
                self._steps = operation(self._context, args)
                self._advance(None)
            elif isinstance(self._wait, Until):
                if not self._wait.holds():
                    return
                self._advance([])
            elif len(self._answers) < self._ranks:
                return
            else:
                self._advance([answer for _, answer in sorted(self._answers.items())])

    def answered(self, answer: ModelControlDone) -> None:
        """Take a rank's answer; one to an earlier question is ignored."""
        if answer.id == self._asked and isinstance(self._wait, Ask):
            self._answers[answer.rank] = answer

    def workers_down(self, message: str) -> None:
        """End an operation that waits for the workers, and forget what they knew."""
        if isinstance(self._wait, Ask):
            self._fail(ControlError(f"{message}; the operation has not happened", "failed"))
        self._context.state.workers_gone()

    def workers_ready(self) -> None:
        """Bring workers that were started again to where those before them were, ahead of all else."""
        if self._context.state.asleep:
            self._queue.appendleft((None, "sleep_again", {}))

    def frontend_gone(self) -> None:
        """Forget who asked: nobody waits for answers. What is under way goes on."""
        self._queue = deque(item for item in self._queue if item[0] is None)
        self._id = None

    def _advance(self, answers: list[ModelControlDone] | None) -> None:
        """Run the operation to its next wait, or to its end."""
        assert self._steps is not None
        try:
            wait = next(self._steps) if answers is None else self._steps.send(answers)
        except StopIteration as end:
            self._end(end.value)
        except ControlError as error:
            self._end(error)
        else:
            self._begin(wait)

    def _begin(self, wait: Until | Ask) -> None:
        self._wait = wait
        if isinstance(wait, Ask):
            self._asked += 1
            self._answers.clear()
            self._ranks = self._outside.ask_workers(self._asked, wait.op, wait.args)
            if not self._ranks:
                self._fail(ControlError("the workers are being restarted; ask again", "unavailable"))

    def _fail(self, error: ControlError) -> None:
        """Let the operation meet an error; it may clean up first, which asks nobody who is not there."""
        assert self._steps is not None
        steps, failure = self._steps, error
        while True:
            try:
                steps.throw(failure)
            except StopIteration as end:
                self._end(end.value)
                return
            except ControlError as last:
                self._end(last)
                return

    def _end(self, result: Args | ControlError) -> None:
        number, self._id, self._steps, self._wait = self._id, None, None, None
        if isinstance(result, ControlError):
            _log.warning("an operation was refused: %s", result.message)
            if number is not None:
                self._refuse(number, result)
        elif number is not None:
            self._outside.control_done(number, None, result)

    def _refuse(self, number: int, error: ControlError) -> None:
        self._outside.control_done(number, error.message, None, error.code, error.param)
