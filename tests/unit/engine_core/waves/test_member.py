"""A rank's part in waves: which letters count, which steps ask, when it is at rest."""

from __future__ import annotations

from octavo.engine_core.waves.member import Join, Leave, WaveMember
from octavo.wire.waves import Broken, Meet, Rest, Start


def met(every: int = 2) -> WaveMember:
    """A rank whose workers have met, and that is able."""
    member = WaveMember(0, every)
    assert member.workers_wait("a").waits
    assert member.take(Meet("m", "of before")) is None
    assert member.take(Meet("m", "a")) == Join("m", "a")
    assert member.take(Meet("m", "a")) is None, "once in a life"
    assert member.say(False, True, "0") is not None
    assert member.say(False, True, "0") is None, "no news"
    return member


def test_every_so_many_steps_ask_and_the_next_waits_for_the_answer() -> None:
    member = met(every=2)
    assert not member.may_step
    member.take(Start("m", 1))
    assert [member.stepped(), member.stepped()] == [False, True]
    assert not member.may_step
    assert member.agreed(True) is None and member.may_step
    member.stepped()
    member.stepped()
    report = member.agreed(False)
    assert report is not None and report.wave == 1 and not member.in_wave
    member.check()


def test_letters_of_waves_and_meetings_that_are_over_change_nothing() -> None:
    member = met(every=1)
    member.take(Start("m", 1))
    member.stepped()
    member.agreed(False)
    for letter in (Start("m", 1), Start("other", 2), Broken("other"), Rest("other", 99)):
        assert member.take(letter) is None and not member.in_wave
    assert member.take(Broken("m")) == Leave("m")


def test_it_is_at_rest_when_the_coordinator_has_heard_and_no_wave_runs() -> None:
    member = met(every=1)
    report = member.say(True, False, "0")
    assert report is not None and not member.at_rest
    member.take(Start("m", 1))
    member.take(Rest("m", report.number - 1))
    assert not member.at_rest, "that was an answer to a report of before"
    member.stepped()
    ended = member.agreed(False)
    assert ended is not None and not member.at_rest
    member.take(Rest("m", ended.number))
    assert member.at_rest
    member.say(True, True, "0")
    again = member.say(True, False, "0")
    assert again is not None and not member.at_rest, "the promise was for the time before"
    member.take(Rest("m", again.number))
    assert member.at_rest


def test_workers_that_are_gone_are_at_rest_and_forget_the_wave() -> None:
    member = met()
    member.take(Start("m", 1))
    report = member.workers_down("b")
    assert (report.life, report.meeting, report.wave) == ("b", "", 0)
    assert member.at_rest and not member.may_step
    member.check()
