"""A small OpenAI server whose answers a test scripts: it runs in a thread of its own, on a free loopback port."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Asked", "Script", "ScriptedServer", "completion", "event", "streamed"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came, and where its answer goes."""

    number: int  # of POSTs, from 0
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int, value: Any, reason: str = "X") -> None:
        """Answer with a JSON body."""
        text = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        await self.send(head.encode() + text)


Script = Callable[[Asked], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(value: Any) -> bytes:
    """Return one server-sent event as one HTTP chunk; a string goes out as it is."""
    text = f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


def completion(text: str | None = None, finish: str | None = None, *, chat: bool = True) -> dict[str, Any]:
    """Return one chunk of an answer."""
    if chat:
        return {"choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]}
    return {"choices": [{"index": 0, "text": text or "", "finish_reason": finish}]}


async def streamed(
    asked: Asked, pieces: Sequence[str] = ("a", "b", "c"), *, prompt_tokens: int = 7, usage: bool = True
) -> None:
    """Answer with the pieces, one a chunk, as a well-behaved server does."""
    chat = asked.path.endswith("/chat/completions")
    await asked.send(HEAD)
    if chat:
        await asked.send(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
    for piece in pieces:
        await asked.send(event(completion(piece, chat=chat)))
    await asked.send(event(completion(finish="length", chat=chat)))
    if usage:
        counts = {"prompt_tokens": prompt_tokens, "completion_tokens": len(pieces)}
        await asked.send(event({"choices": [], "usage": counts}))
    await asked.send(event("[DONE]") + b"0\r\n\r\n")


class ScriptedServer:
    """Serves until the `with` block ends. `asked` holds the POSTs that came; GET /v1/models lists `models`."""

    def __init__(self, script: Script = streamed, models: Sequence[dict[str, Any]] = ({"id": "scripted"},)) -> None:
        self.asked: list[Asked] = []
        self.open_now = 0
        self.most_open = 0
        self.url = ""
        self._script = script
        self._models = list(models)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, head: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if method == "GET":
            await Asked(-1, path, headers, {}, writer).reply(200, {"data": self._models})
            return
        asked = Asked(len(self.asked), path, headers, json.loads(body or b"{}"), writer)
        self.asked.append(asked)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            await self._script(asked)
        finally:
            self.open_now -= 1
