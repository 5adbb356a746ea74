"""OpenAI completions over OpenVINO GenAI's continuous batching: just enough to measure it beside servers.

Runs in OpenVINO's own environment, so it imports nothing of octavo. Text goes out token by token; half characters are
held back until they are whole.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import queue
import threading
from dataclasses import dataclass, field
from typing import Any

import openvino_genai as genai  # type: ignore[import-not-found,unused-ignore]  # of another environment


@dataclass
class Job:
    """One request, shared between the HTTP side and the engine's thread."""

    prompt: str
    config: Any
    loop: asyncio.AbstractEventLoop
    handle: Any = None
    ids: list[int] = field(default_factory=list)
    sent: int = 0  # characters
    out: asyncio.Queue[tuple[str, bool] | Exception] = field(default_factory=asyncio.Queue)

    def tell(self, item: tuple[str, bool] | Exception) -> None:
        """Hand over a piece of text, with whether it is the last; or what went wrong."""
        self.loop.call_soon_threadsafe(self.out.put_nowait, item)


class Engine:
    """Owns the pipeline; one thread steps it while there is work."""

    def __init__(self, model: str, threads: int) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 1
        scheduler.enable_prefix_caching = True
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "bf16"}
        self._pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", settings)
        self._tokenizer = self._pipeline.get_tokenizer()
        self._arrived: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._jobs: list[Job] = []
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, job: Job) -> None:
        """Take a request."""
        self._arrived.put(job)

    def prompt_tokens(self, prompt: str) -> int:
        """Count a prompt's tokens."""
        return int(self._tokenizer.encode(prompt).input_ids.shape[1])

    def _run(self) -> None:
        number = 0
        while True:
            while not self._jobs or not self._arrived.empty():
                job = self._arrived.get()
                try:
                    job.handle = self._pipeline.add_request(number, job.prompt, job.config)
                    self._jobs.append(job)
                except Exception as error:
                    job.tell(error)
                number += 1
            self._pipeline.step()
            self._jobs = [job for job in self._jobs if self._advance(job)]

    def _advance(self, job: Job) -> bool:
        """Send what is new; return whether the request goes on."""
        while job.handle.can_read():
            for output in job.handle.read().values():
                job.ids += output.generated_ids
        ended = job.handle.get_status() != genai.GenerationStatus.RUNNING
        text = self._tokenizer.decode(job.ids)
        if ended or not text.endswith("\ufffd"):
            piece, job.sent = text[job.sent :], max(len(text), job.sent)
            job.tell((piece, ended))
        return not ended


class Server:
    """HTTP/1.1, no keep-alive."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in head if line.startswith("content-length:")), 0)
            body = await reader.readexactly(length)
            if head[0].startswith("post /v1/completions"):
                await self._complete(json.loads(body), writer)
            else:
                known = {"/health": {}, "/v1/models": {"data": [{"id": "bench"}]}}
                found = known.get(head[0].split(" ")[1])
                self._reply(writer, 404 if found is None else 200, found or {})
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @staticmethod
    def _reply(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
            % (status, len(text), text)
        )

    async def _complete(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens = asked.get("max_tokens", 16)
        config.ignore_eos = bool(asked.get("ignore_eos"))
        job = Job(asked["prompt"], config, asyncio.get_running_loop())
        self._engine.submit(job)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        ended = False
        while not ended:
            item = await job.out.get()
            if isinstance(item, Exception):
                self._event(writer, {"error": {"message": str(item)}})
                return
            text, ended = item
            choice = {"index": 0, "text": text, "finish_reason": "length" if ended else None}
            self._event(writer, {"choices": [choice]})
            await writer.drain()
        usage = {"prompt_tokens": self._engine.prompt_tokens(job.prompt), "completion_tokens": len(job.ids)}
        self._event(writer, {"choices": [], "usage": usage})
        writer.write(b"data: [DONE]\n\n")

    @staticmethod
    def _event(writer: asyncio.StreamWriter, value: Any) -> None:
        writer.write(f"data: {json.dumps(value)}\n\n".encode())


async def main() -> None:
    """Load the model, listen, serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    engine = Engine(arguments.model, arguments.threads)
    server = await asyncio.start_server(Server(engine).serve, "127.0.0.1", arguments.port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
