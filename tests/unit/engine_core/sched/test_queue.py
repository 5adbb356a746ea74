"""The queue stays sorted, whatever comes and goes, in however many chunks."""

from __future__ import annotations

import random

import pytest

from octavo.engine_core.request import Request
from octavo.engine_core.sched.budget import SchedLimits
from octavo.engine_core.sched.queue import RequestQueue
from tests.engine.harness import request

LIMITS = SchedLimits(4, 64, 100, priorities=True)


def made(number: int, priority: int = 0) -> Request:
    return Request(request(number, [1], priority=priority), {}, LIMITS)


def test_requests_stand_in_the_order_of_service() -> None:
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


def test_many_come_and_go() -> None:
    rng = random.Random(5)
    queue, inside = RequestQueue(), []
    requests = [made(number, rng.randrange(3)) for number in range(1500)]
    for request_ in requests:
        queue.add(request_)
        inside.append(request_)
        if rng.random() < 0.3:
            gone = inside.pop(rng.randrange(len(inside)))
            queue.remove(gone)
            assert gone not in queue
        assert len(queue) == len(inside)
    assert queue.snapshot() == list(queue) == sorted(inside, key=lambda r: r.key)
    for request_ in rng.sample(inside, len(inside)):
        assert request_ in queue
        queue.remove(request_)
    assert len(queue) == 0
    assert list(queue) == []


def test_what_is_walked_past_may_leave_meanwhile() -> None:
    queue = RequestQueue()
    for number in range(1200):
        queue.add(made(number))
    seen = []
    for request_ in queue:
        seen.append(request_.id)
        queue.remove(request_)
    assert seen == list(range(1200))
    assert len(queue) == 0
