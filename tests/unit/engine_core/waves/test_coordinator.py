"""The coordinator of waves, letter by letter."""

from __future__ import annotations

import itertools

import msgspec

from octavo.engine_core.waves.coordinator import WaveCoordinator
from octavo.wire.waves import Broken, Meet, Report, Rest, Start, ToMember


class Desk:
    """Two ranks that report to a coordinator."""

    def __init__(self) -> None:
        words = itertools.count(1)
        self.coordinator = WaveCoordinator(2, lambda: f"m{next(words)}")
        self.now = [Report(rank, f"life-{rank}", "", 0, True, 0, False, False, "0") for rank in range(2)]

    def say(self, rank: int, **news: object) -> list[tuple[int, ToMember]]:
        """Let a rank report, with what has changed."""
        self.now[rank] = msgspec.structs.replace(self.now[rank], number=self.now[rank].number + 1, **news)
        letters = self.coordinator.take(self.now[rank])
        self.coordinator.check()
        return letters

    def met(self) -> Desk:
        """Let both meet and be able."""
        self.say(0)
        self.say(1)
        for rank in range(2):
            self.say(rank, meeting="m1", waits=False, able=True)
        return self


def test_workers_meet_when_all_are_there_and_are_told_again() -> None:
    desk = Desk()
    assert desk.say(1) == []
    assert desk.say(0) == [(0, Meet("m1", "life-0")), (1, Meet("m1", "life-1"))]
    assert desk.say(1) == [(1, Meet("m1", "life-1"))], "the first may be lost"


def test_a_wave_begins_for_all_when_one_wants_and_all_are_able() -> None:
    desk = Desk().met()
    assert desk.say(1, wants=True) == [(0, Start("m1", 1)), (1, Start("m1", 1))]
    assert desk.say(0) == [(0, Start("m1", 1))], "the first may be lost"
    assert desk.say(1, wave=1, wants=False) == [] and desk.coordinator.running, "the other is in it still"
    assert desk.say(0, wave=1, wants=True) == [(0, Start("m1", 2)), (1, Start("m1", 2))]


def test_a_notice_that_is_late_changes_nothing() -> None:
    desk = Desk().met()
    late = msgspec.structs.replace(desk.now[0], wants=True)
    assert desk.coordinator.take(late) == [], "it has no higher number"
    desk.say(1, wants=True)
    desk.say(0, wave=1)
    desk.say(1, wave=1, wants=False)
    assert desk.coordinator.take(msgspec.structs.replace(desk.now[1], number=2, wants=True)) == []
    assert not desk.coordinator.running


def test_rest_is_promised_outside_of_waves_only_and_kept() -> None:
    desk = Desk().met()
    desk.say(1, wants=True)
    assert desk.say(0, able=False) == [(0, Start("m1", 1))], "it must step until all agree"
    assert desk.say(0, wave=1) == []
    rest = Rest("m1", desk.now[0].number)
    assert desk.say(1, wave=1) == [(0, rest)]
    assert desk.say(1, wants=True) == [], "no wave without it"
    assert desk.say(0, able=True) == [(0, Start("m1", 2)), (1, Start("m1", 2))]


def test_ranks_with_different_weights_have_no_wave_together() -> None:
    desk = Desk().met()
    desk.say(0, weights="1")
    assert desk.say(1, wants=True) == []
    assert desk.say(1, weights="1") == [(0, Start("m1", 1)), (1, Start("m1", 1))]


def test_a_new_life_breaks_the_meeting_and_all_meet_again() -> None:
    desk = Desk().met()
    old = desk.now[1]
    assert desk.say(1, life="life-2", meeting="", able=False) == [(0, Broken("m1")), (1, Broken("m1"))]
    assert desk.coordinator.take(msgspec.structs.replace(old, number=99)) == [], "of a life that is over"
    assert desk.say(0) == [(0, Broken("m1"))], "the first may be lost"
    desk.say(0, life="life-3", meeting="", waits=True)
    assert desk.say(1, waits=True) == [(0, Meet("m2", "life-3")), (1, Meet("m2", "life-2"))]


def test_a_new_coordinator_ends_meetings_that_it_does_not_know() -> None:
    desk = Desk().met()
    desk.coordinator = WaveCoordinator(2)
    assert desk.say(1) == [(1, Broken("m1"))]
    assert desk.say(7 % 2, meeting="", waits=True, life="life-9") == []
