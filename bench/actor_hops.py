"""What does a message cost? Medians in microseconds, as JSON: `python bench/actor_hops.py`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import anyio
import zmq

from octavo.actors.actor import Actor
from octavo.actors.child import Parent, watch_parent
from octavo.actors.link import ZmqLink
from octavo.actors.mailbox import Mailbox
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.ref import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ROUNDS = 2000
BURST = 500
PAYLOAD = b"x" * 2048  # a plan of 256 rows


class Echo(Actor[Reply[int]]):
    async def handle(self, message: Reply[int]) -> None:
        message.set(1)


def put_and_take() -> float:
    """One message through a mailbox without waiting."""
    mailbox: Mailbox[int] = Mailbox(BURST)
    began = time.perf_counter()
    for _ in range(ROUNDS):
        mailbox.put_nowait(1)
        mailbox.get_nowait()
    return (time.perf_counter() - began) / ROUNDS * 1e6


async def ask() -> float:
    """Ask an actor of the same loop: two hops."""
    actor = Echo("echo")
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)
        value = await _median(lambda: ref.ask(lambda reply: reply, timeout_s=10))
        actor.stop()
    return value


async def told_burst() -> float:
    """One message of a burst of 500, told and handled."""
    actor = Echo("echo")
    async with anyio.create_task_group() as group:
        ref = await group.start(actor.run)

        async def burst() -> None:
            for _ in range(BURST - 1):
                ref.tell(Reply())
            await ref.ask(lambda reply: reply, timeout_s=10)

        value = await _median(burst, ROUNDS // 40)
        actor.stop()
    return value / BURST


async def process_round_trip() -> tuple[float, float]:
    """To a process actor and back: one message of 2 KB at a time; and, per message, 500 at once."""
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder, zmq.Context() as context:
        arrived = anyio.Event()
        count = 0

        def take(message: list[bytes]) -> None:
            nonlocal count
            count -= 1
            if count == 0:
                arrived.set()

        actor = ProcessActor(
            ProcessSpec(name="echo", argv=[sys.executable, __file__, "echo"]),
            ZmqLink(context, Path(folder), list),
            check_hello=lambda message: None,
            on_message=take,
        )

        async def send(number: int) -> None:
            nonlocal arrived, count
            arrived, count = anyio.Event(), number
            for _ in range(number):
                actor.send([PAYLOAD])
            await arrived.wait()

        async with anyio.create_task_group() as group:
            await group.start(actor.run)
            one = await _median(lambda: send(1))
            many = await _median(lambda: send(BURST), ROUNDS // 40)
            actor.stop()
    return one, many / BURST


def echo() -> None:
    watch_parent()
    parent = Parent.find()
    inbox, outbox = parent.inbox(), parent.outbox()
    outbox.send([b"hello"])
    while frames := inbox.receive():
        outbox.send(frames)


async def _median(body: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await body()
        times.append(time.perf_counter() - began)
    return median(times) * 1e6


async def main() -> None:
    one, many = await process_round_trip()
    result = {
        "mailbox_put_and_take_us": put_and_take(),
        "ask_us": await ask(),
        "tell_and_handle_in_a_burst_us": await told_burst(),
        "process_round_trip_us": one,
        "process_round_trip_in_a_burst_us": many,
    }
    load = os.getloadavg()[0]
    print(json.dumps({**{key: round(value, 1) for key, value in result.items()}, "load": load}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["echo"]:
        echo()
    else:
        anyio.run(main)
