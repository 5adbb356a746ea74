"""Requests that wait for their grammar."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from octavo.engine_core.grammar.desk import GrammarDesk, GrammarReady
from octavo.wire.frontend import Grammar
from tests.engine.fake_grammar import FakeGrammars
from tests.engine.harness import request

if TYPE_CHECKING:
    from octavo.engine_core.grammar.protocol import CompiledGrammar

GOOD, BAD = Grammar("fake", "7,1,5"), Grammar("fake", "nonsense")


class Gated(FakeGrammars):
    """Compiles when the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Event()

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        assert self.gate.wait(10)
        return super().compile(grammar)


class Seen(list[GrammarReady]):
    """What a desk has said."""

    def __init__(self) -> None:
        super().__init__()
        self._more: anyio.Event | None = None

    def note(self, event: GrammarReady) -> None:
        self.append(event)
        if self._more is not None:
            self._more.set()

    async def wait(self, count: int) -> None:
        with anyio.fail_after(10):
            while len(self) < count:
                self._more = anyio.Event()
                await self._more.wait()


async def settle(desk: GrammarDesk, events: Seen, count: int) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run)
        await events.wait(count)
        tasks.cancel_scope.cancel()


def test_a_grammar_is_compiled_once_for_all_who_wait() -> None:
    events = Seen()
    desk, grammars = GrammarDesk(events.note), FakeGrammars()
    desk.open(grammars)
    for number in (3, 1, 2):
        desk.hold(request(number, [1], grammar=GOOD.text))
    assert desk.num_waiting == 3 and desk.find(GOOD) is None
    anyio.run(settle, desk, events, 1)
    assert grammars.compiled == [GOOD.text] and events == [GrammarReady(GOOD, None)]
    assert [message.id for message in desk.take(GOOD)] == [3, 1, 2]
    assert desk.find(GOOD) is not None and desk.num_waiting == 0 and desk.take(GOOD) == []


def test_a_grammar_that_cannot_be_compiled_tells_why() -> None:
    events = Seen()
    desk = GrammarDesk(events.note)
    desk.open(FakeGrammars())
    desk.hold(request(1, [1], grammar=BAD.text))
    anyio.run(settle, desk, events, 1)
    assert events[0].error is not None and "is no grammar" in events[0].error.message
    assert [message.id for message in desk.take(BAD)] == [1] and desk.find(BAD) is None


def test_requests_leave_and_later_attempts_replace_earlier_ones() -> None:
    desk = GrammarDesk(lambda event: None)
    desk.open(FakeGrammars())
    desk.hold(request(1, [1], grammar=GOOD.text))
    desk.hold(request(1, [1], grammar=GOOD.text, attempt=2))
    desk.hold(request(2, [1], grammar=GOOD.text))
    assert desk.attempt(1) == 2 and desk.attempt(9) == 0 and desk.num_waiting == 2
    desk.drop([2, 9])
    assert desk.num_waiting == 1
    desk.drop_all()
    assert desk.num_waiting == 0


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.engine_core.grammar.desk._MAX_KEPT", 2)
    events = Seen()
    desk = GrammarDesk(events.note)
    desk.open(FakeGrammars())
    texts = ["2,1,5", "3,1,5", "4,1,5"]
    for number, text in enumerate(texts[:2]):
        desk.hold(request(number, [1], grammar=text))
    anyio.run(settle, desk, events, 2)
    assert desk.find(Grammar("fake", texts[0])) is not None
    desk.hold(request(9, [1], grammar=texts[2]))
    anyio.run(settle, desk, events, 3)
    kept = [desk.find(Grammar("fake", text)) is not None for text in texts]
    assert kept.count(True) == 2 and kept[2]


def test_a_slow_grammar_holds_up_nobody_else() -> None:
    async def run() -> None:
        events = Seen()
        desk, grammars = GrammarDesk(events.note), Gated()
        desk.open(grammars)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.run)
            desk.hold(request(1, [1], grammar=GOOD.text))
            for _ in range(20):
                await anyio.lowlevel.checkpoint()  # the loop goes on
            assert not events
            grammars.gate.set()
            await events.wait(1)
            tasks.cancel_scope.cancel()

    anyio.run(run)
