"""What is asked of a server before the load: its models, and how long its tokens are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from octavo.benchmarks.datasets.sample import Turn
from octavo.benchmarks.reader import Sink
from octavo.benchmarks.tokenizer import Tokenizer, Words, load
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.benchmarks.connection import Connections, Server
    from octavo.benchmarks.options import ServeOptions
    from octavo.benchmarks.runner import Runner

__all__ = ["Models", "calibrate", "choose_tokenizer", "fetch", "first_model"]

#: What --model and the server's own word lead to: name in requests, and the other names it goes by.
Models = list[dict[str, Any]]

PROBE_WORDS = 128


class _Whole(Sink):
    def __init__(self) -> None:
        self.status = 0
        self.text = b""
        self.reason: str | None = None

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def body(self, data: bytes, now: float) -> None:
        self.text += data

    def end(self, now: float) -> None:
        pass

    def broken(self, reason: str, now: float) -> None:
        self.reason = reason


async def fetch(
    connections: Connections, server: Server, method: str, path: str, headers: dict[str, str]
) -> tuple[int, bytes]:
    """Do one small request and return status and body. Raises OSError."""
    fields = {"host": server.authority, "accept": "application/json", "content-length": "0"} | headers
    lines = [f"{method} {server.target(path)} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
    whole = _Whole()
    await connections.exchange("\r\n".join(lines).encode("latin-1"), whole)
    if whole.reason is not None:
        raise OSError(whole.reason)
    return whole.status, whole.text


async def first_model(connections: Connections, server: Server, headers: dict[str, str]) -> Models:
    """Return what /v1/models lists; empty where the server has no such list. Raises OSError."""
    status, text = await fetch(connections, server, "GET", "/v1/models", headers)
    if status != 200:
        return []
    try:
        found = msgspec.json.decode(text)["data"]
        return [model for model in found if isinstance(model, dict) and isinstance(model.get("id"), str)]
    except (msgspec.DecodeError, KeyError, TypeError):
        return []


def choose_tokenizer(options: ServeOptions, model: str, models: Models) -> Tokenizer:
    """Load --tokenizer or, without it, the tokenizer of the model as its name or the server's list lead to it.

    Where nothing leads to one, prompts are common words. Raises ConfigError if --tokenizer cannot be had.
    """
    if options.skip_tokenizer_init:
        return Words()
    if options.tokenizer is not None:
        found = load(options.tokenizer, hub=True)
        if found is None:
            raise ConfigError(
                f"--tokenizer {options.tokenizer}: no folder with a tokenizer.json, no GGUF file, and the Hugging Face "
                "Hub does not have it or cannot be reached",
                "tokenizer",
            )
        return found
    roots = [str(entry["root"]) for entry in models if entry["id"] == model and entry.get("root")]
    for name in (options.model, *roots):
        found = load(name, hub=False) if name else None
        if found is not None:
            return found
    return (load(options.model, hub=True) if options.model and "/" in options.model else None) or Words()


async def calibrate(tokenizer: Tokenizer, runner: Runner, headers: dict[str, str]) -> None:
    """Teach `Words` how many tokens a word is, from the server's own counts of two prompts.

    The difference of the two leaves out what a chat template adds. A server that does not answer or count leaves the
    ratio at 1: the load itself will report what is wrong.
    """
    if not isinstance(tokenizer, Words):
        return
    rng = np.random.default_rng(0)
    counts = []
    for words in (PROBE_WORDS, 2 * PROBE_WORDS):
        text = Words().random(rng, words)
        record = await runner.one(Turn(text, 0, 1), headers)
        if record.failure is not None:
            return
        counts.append(record.prompt_tokens)
    if counts[1] > counts[0] > 0:
        tokenizer.tokens_per_word = (counts[1] - counts[0]) / PROBE_WORDS
