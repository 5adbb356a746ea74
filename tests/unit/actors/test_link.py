"""The link to a process, and what strangers of the same user can do to it: nothing."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING

import anyio
import pytest
import zmq

from octavo.actors.child import Parent
from octavo.actors.errors import SendFull
from octavo.actors.link import ZmqLink
from tests.unit.actors.until import until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from octavo.actors.transport import Context

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STRANGE = ([b""], [b"junk"], [b"", b"hello"], [os.urandom(16), b"hello"], [os.urandom(16)])


def child(environ: Mapping[str, str]) -> Parent:
    return Parent.find({**environ, "OCTAVO_NAME": "worker-0", "OCTAVO_INCARNATION": "7"})


async def test_strangers_are_passed_over_and_get_nothing(context: Context, folder: Path) -> None:
    link = ZmqLink(context, folder, list)
    environ = link.open("worker-0", 7)
    parent = child(environ)
    inbox, outbox = parent.inbox(), parent.outbox()
    with anyio.fail_after(20), zmq.Context() as others:
        await link.writable()
        thieves = [others.socket(kind) for kind in (zmq.PAIR, zmq.PULL)]
        for thief in thieves:
            thief.connect(environ["OCTAVO_INBOX"])
        liar = others.socket(zmq.PUSH)
        liar.connect(environ["OCTAVO_OUTBOX"])
        for frames in STRANGE:
            liar.send_multipart(frames)
        for number in range(100):
            link.send([b"plan", b"%d" % number])
            assert inbox.receive(10) == [b"plan", b"%d" % number]
        assert not any(thief.poll(0) for thief in thieves)
        while link.dropped < len(STRANGE):
            outbox.send([b"result"])
            assert all(message == [b"result"] for message in await link.receive())
        others.destroy(linger=0)
    assert link.dropped == len(STRANGE)
    parent.close(0)
    link.close()


async def test_bytes_that_are_no_frames_end_that_connection(context: Context, folder: Path) -> None:
    link = ZmqLink(context, folder, list)
    environ = link.open("worker-0", 7)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
    huge = b"\x02" + struct.pack(">Q", 4 << 30) + b"x" * 64
    for payload in (os.urandom(4096), bytes(4096), huge, greeting + ready + huge, greeting + ready + b"\x01\x00" * 9):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(environ["OCTAVO_OUTBOX"].removeprefix("ipc://"))
            stranger.sendall(payload)
    parent = child(environ)
    outbox = parent.outbox()
    outbox.send([b"hello"])
    with anyio.fail_after(20):
        assert await link.receive() == [[b"hello"]]
    parent.close(0)
    link.close()


async def test_the_queue_is_full_without_a_process_and_after_it_left(context: Context, folder: Path) -> None:
    link = ZmqLink(context, folder, list)
    parent = child(link.open("worker-0", 7))
    parent.inbox()
    with anyio.fail_after(20):
        await link.writable()
    link.send([b"one"])
    parent.close(0)

    def full() -> bool:
        try:
            link.send([b"more"])
        except SendFull:
            return True
        return False

    await until(full)
    link.close()
