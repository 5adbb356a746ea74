"""Processes for the tests: `python programs.py NAME [ARGUMENT...]`."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import anyio
import zmq

from octavo.actors.child import Inbox, Outbox, Parent, register_dump, watch_parent
from octavo.actors.link import ZmqLink
from octavo.actors.process import ProcessActor, ProcessSpec
from octavo.actors.supervisor import ChildSpec, Strategy, Supervisor


def join(version: str = "1") -> tuple[Parent, Inbox, Outbox]:
    watch_parent()
    parent = Parent.find()
    inbox, outbox = parent.inbox(), parent.outbox()
    outbox.send([b"hello", version.encode(), b"%d" % parent.incarnation])
    return parent, inbox, outbox


def echo() -> None:
    """Send everything back, until told to stop."""
    parent, inbox, outbox = join()
    while (frames := inbox.receive()) != [b"stop"]:
        outbox.send(frames or [])
    parent.close()


def flood(count: str) -> None:
    """Send numbers from a second thread while the first echoes."""
    parent, inbox, outbox = join()

    def send() -> None:
        own = parent.outbox()
        for i in range(int(count)):
            own.send([b"flood", b"%d" % i])

    thread = threading.Thread(target=send)
    thread.start()
    while (frames := inbox.receive()) != [b"stop"]:
        outbox.send(frames or [])
    thread.join()
    parent.close()


def wrong_version() -> None:
    _parent = join("0")
    time.sleep(600)


def silent() -> None:
    watch_parent()
    print("still loading", file=sys.stderr, flush=True)
    time.sleep(600)


def crash() -> None:
    """Say hello, report a fault, print 100 lines, exit with code 3."""
    parent, _, outbox = join()
    outbox.send([b"fault", b"out of paper"])
    for i in range(100):
        print(f"line {i}", file=sys.stderr)
    print("a print on stdout", flush=True)
    parent.close()
    sys.exit(3)


def die() -> None:
    """Say hello and be killed by a signal."""
    join()[0].close()
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    print("no such model", file=sys.stderr)
    sys.exit(1)


def hang() -> None:
    """Send heartbeats that tell of no progress."""
    register_dump()
    _parent, _, outbox = join()
    while True:
        outbox.send([b"heartbeat", b"step 7"])
        time.sleep(0.02)


def work() -> None:
    """Send heartbeats that tell of progress."""
    parent, inbox, outbox = join()
    step = 0
    while inbox.receive(0.02) is None:
        step += 1
        outbox.send([b"heartbeat", b"step %d" % step])
    parent.close()


def stubborn() -> None:
    """Ignore SIGTERM and every message."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _parent = join()
    while True:
        time.sleep(600)


def speak() -> None:
    """Write to stderr, then send a message."""
    _parent, _, outbox = join()
    print("last words", file=sys.stderr, flush=True)
    outbox.send([b"spoke"])
    time.sleep(600)


def stray() -> None:
    """Start a process that knows nothing of us and holds our stderr, say who it is, exit."""
    parent, _, outbox = join()
    sleeper = subprocess.Popen(["sleep", "600"])
    outbox.send([b"stray", b"%d" % sleeper.pid])
    parent.close()
    os._exit(1)  # without waiting for it


def listening(behaviour: str) -> None:
    """Announce readiness on stdout, as the frontend does."""
    watch_parent()
    print("starting up", flush=True)
    print(json.dumps({"event": "listening", "inherited": os.environ.get("OCTAVO_TEST", "")}), flush=True)
    if behaviour == "exit":
        return
    time.sleep(600)


def tree(depth: str) -> None:
    """Supervise a process that supervises ...; the leaf sleeps. Each prints its pid and passes on those below."""
    watch_parent()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    anyio.run(partial(_supervise, int(depth)))


async def _supervise(depth: int) -> None:
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder, zmq.Context() as context:
        inner = ["tree", str(depth - 1)] if depth else ["leaf"]

        def make() -> ProcessActor[list[bytes]]:
            return ProcessActor(
                ProcessSpec(name="inner", argv=[sys.executable, __file__, *inner], hello_timeout_s=100),
                ZmqLink(context, Path(folder), list),
                check_hello=lambda message: None,
                on_message=lambda message: None,
            )

        await Supervisor("tree", [ChildSpec(name="inner", factory=make)], strategy=Strategy.ONE_FOR_ALL).run()


def leaf() -> None:
    """Print the pid and never let another Python thread run: only the kernel can end this."""
    _parent = join()
    print(json.dumps({"pid": os.getpid()}), flush=True)
    print(json.dumps({"leaf": True}), flush=True)
    ctypes.PyDLL(None).sleep(600)  # keeps the interpreter lock


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
