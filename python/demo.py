"""`make demo`: serve a small chat model and ask it a question through the official client."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from openai import OpenAI
from rich.console import Console

from octavo.cli.server import ready_line, stop
from octavo.errors import OctavoError
from octavo.modelfiles.smollm2 import fetch

__all__ = ["main"]

QUESTION = "What is the capital of France?"
NAME = "smollm2"
READY_TIMEOUT_S = 180.0


def main() -> int:
    """Fetch the model, serve it, ask, stop the server; return the exit code."""
    console = Console(highlight=False)
    console.print("[bold]== model: SmolLM2-135M-Instruct (98 MB, once)")
    try:
        path = fetch()
    except OctavoError as error:
        console.print(f"[red]{error}")
        return 1
    console.print(f"[bold]== serve: octavo serve {path} --served-model-name {NAME} --port 0")
    began = time.monotonic()
    server = _start(str(path))
    try:
        url = _wait_ready(server)
        console.print(f"[bold]== ask: {QUESTION}[/]  (server ready after {time.monotonic() - began:.1f} s)")
        answer = _ask(console, url)
    finally:
        code = stop(server)
    console.print(f"[bold]== server stopped with exit code {code}")
    if "Paris" not in answer:
        console.print("[red]The answer does not name Paris.")
        return 1
    return code


def _start(path: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "octavo", "serve", path, "--served-model-name", NAME, "--port", "0"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _wait_ready(server: subprocess.Popen[str]) -> str:
    """Return the server's address; raises OctavoError when it ends or does not get ready in time."""
    assert server.stdout is not None
    timer = threading.Timer(READY_TIMEOUT_S, server.kill)
    timer.start()
    try:
        return ready_line(server.stdout)
    finally:
        timer.cancel()


def _ask(console: Console, url: str) -> str:
    """Stream one answer to the screen and return it."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
    began = time.perf_counter()
    first = last = began
    pieces: list[str] = []
    tokens = 0
    stream = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        max_tokens=128,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        if chunk.usage is not None:
            tokens = chunk.usage.completion_tokens
        text = chunk.choices[0].delta.content if chunk.choices else None
        if text:
            last = time.perf_counter()
            first = first if pieces else last
            pieces.append(text)
            console.print(text, end="", style="cyan")
            console.file.flush()
    console.print()
    rate = f"{(tokens - 1) / (last - first):.1f} tokens/s" if last > first else "one piece"
    console.print(f"[bold]== {tokens} tokens; TTFT {1000 * (first - began):.0f} ms; then {rate}")
    return "".join(pieces)


if __name__ == "__main__":
    sys.exit(main())
