"""The coordinator: knows all ranks, and says when workers meet and when waves begin. No I/O, no clock.

A wave begins only when every rank has said that it is able, so no rank is ever in an exchange that another does not
come to; it ends when all ranks, in one exchange, find that nobody has work. A rank that wants to leave (a pause, a
sleep) says that it is not able and goes on stepping until it hears Rest.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING

from octavo.wire.waves import Broken, Meet, Rest, Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from octavo.wire.waves import Report, ToMember

__all__ = ["WaveCoordinator"]

#: Lives of a rank's workers that are remembered, so that a late report of one says nothing.
_PAST = 16

Letters = list[tuple[int, "ToMember"]]


class WaveCoordinator:
    """Takes reports; each call returns what is to be sent, with the rank that gets it.

    Every report is answered by all that its sender does not know yet, so a message that was lost is sent again.
    """

    def __init__(self, size: int, new_meeting: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        """`size` ranks; `new_meeting` returns a word that was never used."""
        self._size = size
        self._new_meeting = new_meeting
        self._reports: dict[int, Report] = {}  # the last of each rank
        self._past: dict[int, deque[str]] = {rank: deque(maxlen=_PAST) for rank in range(size)}
        self._meeting = ""
        self._lives: dict[int, str] = {}  # of those who meet
        self._wave = 0  # the last that began, of this meeting
        self._running = False

    @property
    def running(self) -> bool:
        """Whether a wave began whose end not all ranks have told of."""
        return self._running

    def take(self, report: Report) -> Letters:
        """Take a report; one that is older than what is known changes nothing."""
        rank = report.rank
        if rank not in self._past or not self._is_news(report):
            return []
        self._reports[rank] = report
        letters: Letters = []
        if self._meeting and self._lives[rank] != report.life:
            letters += self._break()
        if report.meeting and report.meeting != self._meeting:
            letters.append((rank, Broken(report.meeting)))  # of a coordinator before this one, or just broken
        return letters + (self._turn(rank) if self._meeting else self._gather())

    def check(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        assert bool(self._meeting) == (len(self._lives) == self._size)
        assert not self._running or (self._meeting and self._wave > 0)

    def _is_news(self, report: Report) -> bool:
        known = self._reports.get(report.rank)
        if known is None:
            return True
        if known.life == report.life:
            return report.number > known.number
        past = self._past[report.rank]
        if report.life in past:
            return False
        past.append(known.life)
        return True

    def _break(self) -> Letters:
        meeting, self._meeting = self._meeting, ""
        self._lives, self._wave, self._running = {}, 0, False
        return [(rank, Broken(meeting)) for rank in range(self._size)]

    def _gather(self) -> Letters:
        """Let workers meet when all are there."""
        reports = self._reports
        if len(reports) < self._size or not all(report.waits and not report.meeting for report in reports.values()):
            return []
        self._meeting = self._new_meeting()
        self._lives = {rank: report.life for rank, report in reports.items()}
        return [self._invite(rank) for rank in range(self._size)]

    def _invite(self, rank: int) -> tuple[int, ToMember]:
        return rank, Meet(self._meeting, self._lives[rank])

    def _turn(self, rank: int) -> Letters:
        """End the wave that all have left, begin one that somebody wants; tell `rank` what it does not know."""
        reports = self._reports
        sender = reports[rank]
        if sender.meeting != self._meeting:
            return [self._invite(rank)]
        if self._running and self._all_left():
            self._running = False
            letters = [letter for other in range(self._size) for letter in self._rest(other)]
            return letters + self._begin()
        if self._running:
            return [(rank, Start(self._meeting, self._wave))] if sender.wave < self._wave else []
        return self._rest(rank) + self._begin()

    def _all_left(self) -> bool:
        return all(report.meeting == self._meeting and report.wave >= self._wave for report in self._reports.values())

    def _rest(self, rank: int) -> Letters:
        report = self._reports[rank]
        return [] if report.able else [(rank, Rest(self._meeting, report.number))]

    def _begin(self) -> Letters:
        reports = self._reports.values()
        able = all(report.meeting == self._meeting and report.able for report in reports)
        if not (able and any(report.wants for report in reports) and len({report.weights for report in reports}) == 1):
            return []
        self._wave += 1
        self._running = True
        return [(rank, Start(self._meeting, self._wave)) for rank in range(self._size)]
