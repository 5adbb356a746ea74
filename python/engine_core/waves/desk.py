"""What the engine asks of waves: its next plan, whether it is at rest, and what to make of letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from octavo.engine_core.waves.member import Join, Leave, WaveMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.engine_core.core import Core
    from octavo.wire.waves import Report, ToMember
    from octavo.wire.worker import StepPlan, StepResult

__all__ = ["MeetingWorkers", "WaveDesk"]


class MeetingWorkers(Protocol):
    """Workers that wait, between their hello and their Init, for the workers of other cores."""

    @property
    def life(self) -> str:
        """What tells these workers from those before and after them."""
        ...

    def begin(self, meeting: str, life: str) -> None:
        """Let the workers load and meet the others, if they live still."""
        ...

    def leave(self, meeting: str) -> None:
        """End the workers, if they joined this meeting; others follow. Not their fault."""
        ...


class WaveDesk:
    """Belongs to the engine's event loop. No method waits."""

    def __init__(self, member: WaveMember, send: Callable[[Report], None]) -> None:
        """`send` hands a report to the coordinator, and may lose it: `repeat` is called now and then."""
        self._member = member
        self._send = send
        self._workers: MeetingWorkers | None = None

    def attach(self, workers: MeetingWorkers) -> None:
        """Say whose workers they are. Once, before they run."""
        self._workers = workers
        self._send(self._member.workers_down(workers.life))

    @property
    def at_rest(self) -> bool:
        """Whether this rank takes part in no step until `say` says that it is able."""
        return self._member.at_rest

    def workers_wait(self, life: str) -> None:
        """Note that the workers of that life have said hello."""
        assert self._workers is not None
        if life == self._workers.life:  # else they are gone, and word of it is on its way
            self._send(self._member.workers_wait(life))

    def workers_down(self) -> None:
        """Note that the workers are gone."""
        assert self._workers is not None
        self._send(self._member.workers_down(self._workers.life))

    def take(self, message: ToMember) -> None:
        """Do what the coordinator says."""
        assert self._workers is not None
        what = self._member.take(message)
        if isinstance(what, Join):
            self._workers.begin(what.meeting, what.life)
        elif isinstance(what, Leave):
            self._workers.leave(what.meeting)

    def say(self, wants: bool, able: bool, weights: str) -> None:
        """Note what this rank could do now."""
        report = self._member.say(wants, able, weights)
        if report is not None:
            self._send(report)

    def repeat(self) -> None:
        """Say again what was said: it, or its answer, may be lost."""
        self._send(self._member.report())

    def next_plan(self, core: Core, runs: bool) -> StepPlan | None:
        """Return the next plan: of requests if there are any and `runs`, without rows if the wave needs one more step.

        None outside of a wave, and while an agreement is awaited.
        """
        if not self._member.may_step:
            return None
        plan = (core.next_plan() if runs else None) or core.idle_plan()
        if plan is None:
            return None
        asks = self._member.stepped()
        return msgspec.structs.replace(plan, unfinished=runs and not core.empty) if asks else plan

    def result(self, result: StepResult) -> None:
        """Take the result of a step: it may be the last of the wave."""
        if result.unfinished is not None:
            report = self._member.agreed(result.unfinished)
            if report is not None:
                self._send(report)
