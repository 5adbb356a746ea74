from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from octavo.actors.actor import Actor
from octavo.actors.errors import ActorDead, AskTimeout, MailboxFull
from octavo.actors.ref import Reply

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]


@dataclass
class Add:
    number: int


@dataclass
class Total:
    reply: Reply[int]


@dataclass
class Boom:
    pass


@dataclass
class Wait:
    until: anyio.Event = field(default_factory=anyio.Event)


class Counter(Actor[Add | Total | Boom | Wait]):
    def __init__(self, capacity: int = 8, stop_timeout_s: float = 5.0) -> None:
        super().__init__("counter", capacity=capacity, stop_timeout_s=stop_timeout_s)
        self.log: list[str] = []
        self.total = 0

    async def on_start(self) -> None:
        self.log.append("start")

    async def handle(self, message: Add | Total | Boom | Wait) -> None:
        match message:
            case Add(number):
                self.total += number
                self.log.append(f"add {number}")
            case Total(reply):
                reply.set(self.total)
            case Boom():
                raise ValueError("boom")
            case Wait(until):
                await until.wait()

    async def idle(self) -> None:
        self.log.append("idle")

    async def on_stop(self) -> None:
        self.log.append("stop")


async def test_messages_are_handled_one_by_one_and_idle_comes_after_the_batch() -> None:
    actor = Counter()
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        ref.tell(Add(1))
        ref.tell(Add(2))
        ref.tell(Add(3), control=True)
        assert await ref.ask(Total, timeout_s=5) == 6
        actor.stop()
    assert actor.log == ["start", "add 3", "add 1", "add 2", "idle", "stop"]


async def test_stop_handles_what_was_accepted_and_refuses_more() -> None:
    actor = Counter()
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        ref.tell(Add(1))
        actor.stop()
        with pytest.raises(ActorDead, match="counter has ended"):
            ref.tell(Add(2))
    assert actor.total == 1
    assert not ref.alive


async def test_messages_told_before_the_start_are_handled() -> None:
    actor = Counter()
    actor.ref.tell(Add(4))
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        assert await ref.ask(Total, timeout_s=5) == 4
        actor.stop()


async def test_a_crash_runs_on_stop_and_fails_open_asks() -> None:
    actor = Counter()
    actor.ref.tell(Boom())

    async def ask() -> None:
        with pytest.raises(ActorDead, match="before it answered"):
            await actor.ref.ask(Total, timeout_s=5)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ValueError, match="boom"):
            await actor.run()
    assert actor.log == ["start", "stop"]
    with pytest.raises(ActorDead):
        actor.ref.tell(Add(1))


async def test_an_ask_times_out_and_a_late_answer_is_dropped() -> None:
    actor = Counter()
    wait = Wait()
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        ref.tell(wait)
        with pytest.raises(AskTimeout, match=r"counter did not answer within 0.01 s"):
            await ref.ask(Total, timeout_s=0.01)
        wait.until.set()
        assert await ref.ask(Total, timeout_s=5) == 0
        actor.stop()


async def test_an_answer_can_be_an_error() -> None:
    reply: Reply[int] = Reply()
    reply.fail(KeyError("no"))
    reply.set(1)  # the first answer counts
    with pytest.raises(KeyError):
        await reply.wait()


async def test_a_full_mailbox_is_back_pressure_to_tell_and_ask() -> None:
    actor = Counter(capacity=1)
    wait = Wait()
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        ref.tell(wait)
        await anyio.wait_all_tasks_blocked()  # it is being handled
        ref.tell(Add(1))
        with pytest.raises(MailboxFull):
            ref.tell(Add(2))
        with pytest.raises(MailboxFull):
            await ref.ask(Total, timeout_s=5)
        wait.until.set()
        actor.stop()
    assert actor.total == 1


async def test_cancellation_during_clean_up_does_not_interrupt_it() -> None:
    class Careful(Counter):
        async def on_stop(self) -> None:
            self.log.append("cleaning")
            cleaning.set()
            await finish.wait()
            self.log.append("clean")

    cleaning, finish = anyio.Event(), anyio.Event()
    actor = Careful()
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        actor.stop()
        await cleaning.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
        assert actor.log[-1] == "cleaning"
        finish.set()
    assert actor.log[-1] == "clean"


async def test_clean_up_that_takes_too_long_is_abandoned() -> None:
    class Stuck(Counter):
        async def on_stop(self) -> None:
            await anyio.sleep_forever()

    actor = Stuck(stop_timeout_s=0.01)
    async with anyio.create_task_group() as group:
        await group.start(actor.run)
        group.cancel_scope.cancel()
    assert not actor.ref.alive


async def test_on_stop_does_not_run_after_a_failed_start() -> None:
    class Unstartable(Counter):
        async def on_start(self) -> None:
            raise OSError("no device")

    actor = Unstartable()
    with pytest.raises(OSError, match="no device"):
        await actor.run()
    assert actor.log == []
    assert not actor.ref.alive


async def test_a_control_message_overtakes_while_a_batch_is_handled() -> None:
    actor = Counter()
    wait = Wait()
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        ref.tell(wait)
        ref.tell(Add(1))
        await anyio.wait_all_tasks_blocked()
        ref.tell(Add(2), control=True)
        wait.until.set()
        actor.stop()
    assert actor.log == ["start", "add 2", "add 1", "idle", "stop"] or actor.log == [
        "start",
        "add 2",
        "idle",
        "add 1",
        "idle",
        "stop",
    ]
