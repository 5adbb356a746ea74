"""A stream that a thread reads while weights change, and which weights chose each of its tokens."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import httpx

from octavo.client import Client
from tests.e2e.server import Server, wait_for
from tests.teacher import Check, check_tokens

__all__ = ["PROMPT", "GrpcStream", "HttpStream", "RlStream"]

PROMPT = [7, 8, 9, 10] * 8


class RlStream(ABC):
    """A greedy completion. `tokens` grows as it is read; `versions`, in the end, are of the weights that made them."""

    def __init__(self, max_tokens: int, prompt: list[int]) -> None:
        self.prompt, self.max_tokens = prompt, max_tokens
        self.tokens: list[int] = []
        self.versions: list[str] = []
        self.finish = ""
        self._thread = threading.Thread(target=self.read)
        self._thread.start()

    @abstractmethod
    def read(self) -> None:
        """Read to the end."""

    def reaches(self, count: int) -> None:
        """Wait for so many tokens."""
        wait_for(lambda: len(self.tokens) >= count, 60, f"{count} tokens, got {len(self.tokens)}")

    def end(self) -> list[int]:
        """Wait for the end and return the tokens."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.tokens

    def check(self, first: Path, then: Path, at_least: int) -> int:
        """Check that some tokens, `at_least` so many, are the first model's and all others the second's."""
        good, beyond = at_least, len(self.tokens) + 1
        assert _holds(first, self.prompt, self.tokens[:good])
        while beyond - good > 1:
            middle = (good + beyond) // 2
            good, beyond = (middle, beyond) if _holds(first, self.prompt, self.tokens[:middle]) else (good, middle)
        for switch in range(at_least, good + 1):
            if _holds(then, self.prompt + self.tokens[:switch], self.tokens[switch:]):
                return switch
        raise AssertionError(f"no switch between {at_least} and {good} of {len(self.tokens)} tokens")


class HttpStream(RlStream):
    """Over HTTP."""

    def __init__(self, server: Server, max_tokens: int, prompt: list[int] = PROMPT) -> None:
        self._url = server.url
        super().__init__(max_tokens, prompt)

    def read(self) -> None:
        body = {
            "model": "tiny",
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": True,
        }
        with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=60) as answer:
            for line in _lines(answer):
                if line.startswith(b"data: {"):
                    event = json.loads(line[6:])
                    self.versions += event.get("weight_versions", [])
                    choice = event["choices"][0]
                    self.tokens += choice.get("token_ids") or []
                    self.finish = choice["finish_reason"] or self.finish


class GrpcStream(RlStream):
    """Over gRPC."""

    def __init__(self, client: Client, max_tokens: int, prompt: list[int] = PROMPT) -> None:
        self._client = client
        super().__init__(max_tokens, prompt)

    def read(self) -> None:
        options = {"max_tokens": self.max_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        for message in self._client.stream(self.prompt, **options):
            self.tokens += message.output.token_ids
            self.versions += message.weight_versions
        self.finish = "length" if len(self.tokens) == self.max_tokens else "short"


def _lines(answer: httpx.Response) -> Iterator[bytes]:
    """Yield lines as SSE has them: httpx's own `iter_lines` would end one at a U+0085 in a text."""
    rest = b""
    for piece in answer.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def _holds(model: Path, prompt: list[int], tokens: list[int]) -> bool:
    if not tokens:
        return True
    try:
        check_tokens(model, Check(prompt, tokens))
    except AssertionError:
        return False
    return True
