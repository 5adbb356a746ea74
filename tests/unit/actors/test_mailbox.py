from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from octavo.actors.errors import MailboxClosed, MailboxFull
from octavo.actors.mailbox import Mailbox

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]


async def test_a_full_mailbox_refuses_and_takes_again_after_a_get() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.put_nowait(1)
    mailbox.put_nowait(2)
    with pytest.raises(MailboxFull, match="2 messages"):
        mailbox.put_nowait(3)
    assert await mailbox.get() == 1
    mailbox.put_nowait(4)
    assert await mailbox.drain() == [2, 4]
    mailbox.check()


async def test_a_full_mailbox_still_takes_control_messages_up_to_their_own_limit() -> None:
    mailbox: Mailbox[str] = Mailbox(1, control_capacity=1)
    mailbox.put_nowait("work")
    mailbox.put_nowait("abort", control=True)
    with pytest.raises(MailboxFull):
        mailbox.put_nowait("abort again", control=True)
    mailbox.check()


async def test_control_messages_are_taken_first() -> None:
    mailbox: Mailbox[str] = Mailbox(8)
    mailbox.put_nowait("a")
    mailbox.put_nowait("b")
    mailbox.put_nowait("control", control=True)
    assert await mailbox.get() == "control"
    mailbox.put_nowait("control again", control=True)
    assert await mailbox.drain() == ["control again", "a", "b"]


async def test_drain_waits_for_the_first_message() -> None:
    mailbox: Mailbox[int] = Mailbox(8)
    got: list[int] = []

    async def take() -> None:
        got.extend(await mailbox.drain())

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert got == []
        mailbox.put_nowait(1)
        mailbox.put_nowait(2)
    assert got == [1, 2]


async def test_a_cancelled_get_loses_nothing() -> None:
    got: list[int] = []

    async def take(mailbox: Mailbox[int]) -> None:
        got.append(await mailbox.get())

    for message in range(20):
        mailbox: Mailbox[int] = Mailbox(8)
        async with anyio.create_task_group() as group:
            group.start_soon(take, mailbox)
            for _ in range(message % 4):
                await anyio.lowlevel.checkpoint()
            mailbox.put_nowait(message)
            group.cancel_scope.cancel()
        got.extend(mailbox.clear())
    assert got == list(range(20))


async def test_close_lets_what_is_there_be_taken_and_then_ends_a_waiting_get() -> None:
    mailbox: Mailbox[int] = Mailbox(8)
    mailbox.put_nowait(1)
    mailbox.close()
    with pytest.raises(MailboxClosed):
        mailbox.put_nowait(2)
    assert await mailbox.get() == 1
    with pytest.raises(MailboxClosed):
        await mailbox.get()


async def test_close_wakes_a_waiting_get() -> None:
    mailbox: Mailbox[int] = Mailbox(8)

    async def take() -> None:
        with pytest.raises(MailboxClosed):
            await mailbox.get()

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        mailbox.close()


async def test_two_tasks_cannot_take() -> None:
    mailbox: Mailbox[int] = Mailbox(8)
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.get)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await mailbox.get()
        group.cancel_scope.cancel()


async def test_get_lets_other_tasks_run_even_if_messages_are_there() -> None:
    mailbox: Mailbox[int] = Mailbox(8)
    ran = anyio.Event()

    async def other() -> None:
        ran.set()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        mailbox.put_nowait(1)
        await mailbox.get()
        assert ran.is_set()
