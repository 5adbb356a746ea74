"""Ranks as threads of one process behind the interface of a body: as real as processes, without their start."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec
import torch

from octavo.workers import model_body
from octavo.workers.model_body import ModelBody

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from torch import Tensor

    from octavo.layers.parallel import Group
    from octavo.wire.worker import AllocateKv, Init, KvReady, Ready, StepPlan, StepResult
    from octavo.workers.body import PendingStep

__all__ = ["RankThreads"]

T = TypeVar("T")
TIMEOUT_S = 60.0


class _Meeting:
    """Where the ranks of one step lay down tensors and take those of all."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=TIMEOUT_S)
        self._parts: list[Tensor | None] = [None] * size

    def exchange(self, rank: int, x: Tensor) -> list[Tensor]:
        self._parts[rank] = x
        self._barrier.wait()
        everyones = [part for part in self._parts if part is not None]
        self._barrier.wait()
        return everyones

    def abort(self) -> None:
        self._barrier.abort()


class _ThreadGroup:
    """Group of a rank that is a thread."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size = rank, size
        self._meeting = meeting

    def all_reduce(self, x: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchange(self.rank, x.clone())).sum(dim=0)

    def all_gather(self, x: Tensor) -> Tensor:
        return torch.cat(self._meeting.exchange(self.rank, x.clone()), dim=-1)


class RankThreads:
    """A group of ranks that implements init, allocate and step as a body does."""

    def __init__(self, ranks: int) -> None:
        self._meeting = _Meeting(ranks)
        self._bodies = [ModelBody() for _ in range(ranks)]
        self._pool = ThreadPoolExecutor(ranks)
        self._join = model_body.join

    def __enter__(self) -> Self:
        size = len(self._bodies)

        def join(message: Init) -> Group:
            return _ThreadGroup(message.rank, size, self._meeting)

        model_body.join = join
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        model_body.join = self._join
        self._meeting.abort()
        self._pool.shutdown()

    def init(self, message: Init) -> Ready:
        size = len(self._bodies)
        ready = self._all(lambda body, rank: body.init(msgspec.structs.replace(message, rank=rank, world_size=size)))
        assert len({(answer.kv_specs, answer.vocab_size) for answer in ready}) == 1
        return ready[0]

    def allocate(self, message: AllocateKv) -> KvReady:
        return self._all(lambda body, _: body.allocate(message))[0]

    def step(self, plan: StepPlan) -> StepResult | PendingStep | None:
        return self._all(lambda body, _: body.step(plan))[0]

    def _all(self, ask: Callable[[ModelBody, int], T]) -> list[T]:
        futures = [self._pool.submit(ask, body, rank) for rank, body in enumerate(self._bodies)]
        return [future.result(TIMEOUT_S) for future in futures]
