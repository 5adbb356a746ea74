"""Who goes first, and who gives way."""

from __future__ import annotations

from octavo.engine_core.request import Request
from octavo.engine_core.sched.budget import SchedLimits
from octavo.engine_core.sched.policy import victim
from tests.engine.harness import request

PRIORITY = SchedLimits(4, 64, 100, priorities=True)
FCFS = SchedLimits(4, 64, 100)


def made(number: int, priority: int = 0, limits: SchedLimits = PRIORITY) -> Request:
    return Request(request(number, [1], priority=priority), {}, limits)


def test_priority_comes_before_arrival_and_only_where_the_policy_says_so() -> None:
    numbers = [(3, 0), (1, 1), (2, 0), (4, -1)]
    assert [r.id for r in sorted((made(*n) for n in numbers), key=lambda r: r.key)] == [4, 2, 3, 1]
    assert [r.id for r in sorted((made(*n, FCFS) for n in numbers), key=lambda r: r.key)] == [1, 2, 3, 4]


def test_the_victim_is_served_last() -> None:
    first, last, low = made(1), made(9), made(2, priority=1)
    assert victim([first, last, low], None) is low
    assert victim([first, last], None) is last
    assert victim([first, last], last) is first
    assert victim([last], last) is last
    assert victim([], None) is None
