"""What waits to be sent: order, merging, what a new session forgets."""

from __future__ import annotations

import time

from octavo.engine_core.outbox import Outbox
from octavo.wire import frontend as wire
from octavo.wire.codec import CORE, pack_tokens

INFO = wire.EngineInfo("m", 128, 1000, 64, 16, 8, 1, "float32")


def delta(
    start: int, *tokens: int, attempt: int = 1, finish: str | None = None, cached: int | None = None
) -> wire.Delta:
    return wire.Delta(1, attempt, start, pack_tokens(tokens), wire.Finish(finish) if finish else None, cached)


def said(outbox: Outbox) -> list[wire.CoreMessage]:
    return [CORE.decode(body) for body in outbox.bodies()]


def merged(*deltas: wire.Delta) -> wire.Delta:
    outbox = Outbox()
    for step, item in enumerate(deltas):
        outbox.deltas(step, [item])
    (message,) = said(outbox)
    assert isinstance(message, wire.Deltas)
    assert message.step == len(deltas) - 1
    (item,) = message.items
    return item


def test_deltas_of_a_request_merge() -> None:
    assert merged(delta(0, 1)) == delta(0, 1)
    assert merged(delta(0, 1, cached=16), delta(1, 2), delta(2, 3, finish="stop")) == delta(
        0, 1, 2, 3, cached=16, finish="stop"
    )
    assert merged(delta(0, 1), delta(1, cached=0), delta(1, finish="length")) == delta(0, 1, cached=0, finish="length")


def test_a_later_attempt_replaces() -> None:
    assert merged(delta(0, 1), delta(1, 3, attempt=2)) == delta(1, 3, attempt=2)
    assert merged(delta(1, 3, attempt=2), delta(0, 1), delta(2, 4, attempt=2)) == delta(1, 3, 4, attempt=2)


def test_many_steps_cost_no_more_than_their_tokens() -> None:
    began = time.perf_counter()
    assert merged(*(delta(n, n) for n in range(100_000))) == delta(0, *range(100_000))
    assert time.perf_counter() - began < 10, "merging copies all tokens again and again"


def test_the_order_and_that_it_is_said_once() -> None:
    outbox = Outbox()
    outbox.goodbye(wire.Goodbye("shutdown"))
    outbox.stats(wire.Stats(*range(11)))
    outbox.deltas(3, [delta(0, 1)])
    outbox.answer(wire.ControlDone(4))
    outbox.answer(wire.RequestRejected(4, 1, "invalid", "no"))
    outbox.answer(wire.ControlDone(4, "later"))
    outbox.status(wire.EngineReady(INFO))
    assert len(outbox) == 6
    kinds = [type(message).__name__ for message in said(outbox)]
    assert kinds == ["EngineReady", "ControlDone", "RequestRejected", "Deltas", "Stats", "Goodbye"]
    assert len(outbox) == 0
    assert said(outbox) == []


def test_what_was_not_taken_is_yielded_again() -> None:
    outbox = Outbox()
    outbox.deltas(1, [delta(0, 1)])
    for body in outbox.bodies():
        assert CORE.decode(body)
        break
    outbox.deltas(2, [delta(1, 2)])
    assert said(outbox) == [wire.Deltas(2, (delta(0, 1, 2),))]


def test_a_new_session_hears_the_status_and_nothing_old() -> None:
    outbox = Outbox()
    outbox.begin()
    assert said(outbox) == []
    outbox.status(wire.EngineReady(INFO))
    assert said(outbox) == [wire.EngineReady(INFO)]
    outbox.deltas(1, [delta(0, 1)])
    outbox.answer(wire.ControlDone(4))
    outbox.begin()
    assert said(outbox) == [wire.EngineReady(INFO)]
