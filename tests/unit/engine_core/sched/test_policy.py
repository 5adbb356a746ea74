"""The order of service."""

from __future__ import annotations

import pytest

from octavo.engine_core.request import Request
from octavo.engine_core.sched.budget import SchedLimits
from octavo.engine_core.sched.policy import RequestQueue, victim
from tests.engine.harness import request

LIMITS = SchedLimits(4, 64, 100)


def made(number: int, priority: int = 0) -> Request:
    return Request(request(number, [1], priority=priority), {}, LIMITS)


def test_priority_then_arrival() -> None:
    queue = RequestQueue()
    requests = {n: made(n, priority) for n, priority in ((3, 0), (1, 1), (2, 0), (4, -1))}
    for r in requests.values():
        queue.add(r)
    assert [r.id for r in queue] == [4, 2, 3, 1]
    queue.remove(requests[2])
    assert [r.id for r in queue] == [4, 3, 1]
    assert requests[2] not in queue
    with pytest.raises(ValueError, match="not in the queue"):
        queue.remove(requests[2])


def test_the_victim_is_served_last() -> None:
    first, last, low = made(1), made(9), made(2, priority=1)
    assert victim([first, last, low], None) is low
    assert victim([first, last], None) is last
    assert victim([first, last], last) is first
    assert victim([last], last) is last
    assert victim([], None) is None
