"""What the frontend keeps in memory: after streams that clients left, and while clients hardly read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.frontend.processes import Stack

__all__ = ["abort_streams", "measure_memory", "resident", "slow_readers"]

_WORKERS = 64


def resident(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def measure_memory(
    stack: Stack, body: Mapping[str, Any], aborted: int, clients: int, seconds: int, settle_s: float
) -> dict[str, float]:
    """Abort streams, then hold slow readers for some seconds; return the figures by name.

    settle_s: after which what was given back is given back. A first tenth of the streams fills what stays filled, such
    as pools and tables, and is not counted.
    """
    abort_streams(stack.port, body, max(1, aborted // 10))
    time.sleep(settle_s)
    before = resident(stack.frontend)
    abort_streams(stack.port, body, aborted)
    time.sleep(settle_s)
    after = resident(stack.frontend)
    most = slow_readers(stack, body, clients, seconds)
    time.sleep(settle_s)
    return {
        "aborted_growth_mib": (after - before) / 2**20,
        "slow_client_kib": (most - after) / clients / 2**10,
        "rss_mib": before / 2**20,
        "rss_end_mib": resident(stack.frontend) / 2**20,
    }


def _request(body: Mapping[str, Any]) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


def abort_streams(port: int, body: Mapping[str, Any], count: int) -> None:
    """Begin so many streams, some at a time, and leave each at its first event, half of them with a reset."""
    request = _request(body)
    left = iter(range(count))

    async def work() -> None:
        for number in left:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await reader.readuntil(b"data: ")
            if number % 2:
                writer.transport.abort()
            else:
                writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def run() -> None:
        await asyncio.gather(*(work() for _ in range(_WORKERS)))

    asyncio.run(run())


def slow_readers(stack: Stack, body: Mapping[str, Any], clients: int, seconds: int) -> int:
    """Open streams, read one byte a second of each; return the most bytes that the frontend had meanwhile."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    request = _request(body)
    most = 0
    with contextlib.ExitStack() as open_sockets:
        sockets = []
        for _ in range(clients):
            one = open_sockets.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", stack.port))
            one.sendall(request)
            one.setblocking(False)
            sockets.append(one)
        for second in range(seconds):
            due = time.monotonic() + 1
            for one in sockets:
                with contextlib.suppress(BlockingIOError):
                    if not one.recv(1) and second:
                        raise RuntimeError("the frontend closed a stream that was read")
            most = max(most, resident(stack.frontend))
            time.sleep(max(0.0, due - time.monotonic()))
    return most
