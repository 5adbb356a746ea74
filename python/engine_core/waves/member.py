"""A rank's part in waves: what it reports, when it may step, which steps ask whether anybody has work. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.wire.waves import Broken, Meet, Report, Rest, Start

if TYPE_CHECKING:
    from octavo.wire.waves import ToMember

__all__ = ["AGREE_EVERY", "Join", "Leave", "WaveMember"]

#: Steps from one agreement to the next: so many steps without work a wave has at most, and one round of them more.
AGREE_EVERY = 32


@dataclass(frozen=True, slots=True)
class Join:
    """Tell the workers, which wait, to meet the others."""

    meeting: str
    life: str  # of the workers that are meant


@dataclass(frozen=True, slots=True)
class Leave:
    """End the workers: the meeting that they joined is over."""

    meeting: str


class WaveMember:
    """Owns where a rank stands. All ranks count the steps of a wave alike, so their agreements fall together.

    A step that asks for an agreement is the last until its answer has come: what comes next depends on it.
    """

    def __init__(self, rank: int, every: int = AGREE_EVERY) -> None:
        """`every`: steps from one agreement to the next, the same on all ranks."""
        self._rank = rank
        self._every = every
        self._life = ""
        self._waits = False
        self._meeting = ""
        self._wave = 0  # the last that has ended
        self._running = 0  # the wave that runs; 0: none
        self._steps = 0  # sent, of the wave that runs
        self._agreeing = False
        self._wants = self._able = False
        self._weights = ""
        self._number = 0  # of the last report
        self._unable_since = 0  # the first report that said so; 0: not reported yet
        self._rested = 0  # the highest report that Rest answered

    @property
    def may_step(self) -> bool:
        """Whether a step must be made: by all ranks, with requests or without."""
        return bool(self._running) and not self._agreeing

    @property
    def in_wave(self) -> bool:
        """Whether a wave runs here."""
        return bool(self._running)

    @property
    def meeting(self) -> str:
        """The meeting that the workers joined; empty before."""
        return self._meeting

    @property
    def at_rest(self) -> bool:
        """Whether this rank is in no wave, and gets into none before it says that it is able."""
        if not self._meeting:
            return True
        return not self._able and not self._running and 0 < self._unable_since <= self._rested

    def workers_wait(self, life: str) -> Report:
        """Note that workers are there and wait to be told where to meet the others."""
        self._forget()
        self._life, self._waits = life, True
        return self.report()

    def workers_down(self, life: str) -> Report:
        """Note that the workers are gone; those that come next will have the name `life`."""
        self._forget()
        self._life = life
        return self.report()

    def say(self, wants: bool, able: bool, weights: str) -> Report | None:
        """Note what this rank could do, and return a report if that is news."""
        if (wants, able, weights) == (self._wants, self._able, self._weights):
            return None
        if able != self._able:
            self._unable_since = 0 if able else self._number + 1
        self._wants, self._able, self._weights = wants, able, weights
        return self.report()

    def report(self) -> Report:
        """Return what there is to say now."""
        self._number += 1
        return Report(
            self._rank,
            self._life,
            self._meeting,
            self._number,
            self._waits,
            self._wave,
            self._wants,
            self._able,
            self._weights,
        )

    def take(self, message: ToMember) -> Join | Leave | None:
        """Take what the coordinator says. What is of another meeting, or known already, changes nothing."""
        match message:
            case Meet(meeting, life) if self._waits and life == self._life:
                self._waits, self._meeting = False, meeting
                return Join(meeting, life)
            case Broken(meeting) if meeting == self._meeting != "":
                return Leave(meeting)
            case Start(meeting, wave) if meeting == self._meeting and wave > max(self._wave, self._running):
                self._running, self._steps = wave, 0
            case Rest(meeting, number) if meeting == self._meeting:
                self._rested = max(self._rested, number)
        return None

    def stepped(self) -> bool:
        """Count a step that is sent. Returns whether it asks for an agreement."""
        assert self.may_step
        self._steps += 1
        self._agreeing = self._steps % self._every == 0
        return self._agreeing

    def agreed(self, unfinished: bool) -> Report | None:
        """Take the answer of an agreement: whether any rank has work. Returns a report if the wave ends."""
        if not self._agreeing:
            return None
        self._agreeing = False
        if unfinished:
            return None
        self._wave, self._running = self._running, 0
        return self.report()

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        assert not (self._running and not self._meeting)
        assert not (self._agreeing and not self._running)
        assert not (self._waits and self._meeting)

    def _forget(self) -> None:
        self._waits, self._meeting = False, ""
        self._wave = self._running = self._steps = 0
        self._agreeing = False
        self._unable_since = 0 if self._able else self._number + 1
