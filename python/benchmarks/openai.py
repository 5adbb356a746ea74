"""The OpenAI APIs as a load generator sees them: bodies out, streamed answers in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.benchmarks.reader import Sink
from octavo.benchmarks.record import Failure, Record, TokensFrom
from octavo.benchmarks.sse import Events

__all__ = ["BACKENDS", "Answer", "Message", "body", "head"]

#: Names of --backend and the endpoint of each. `vllm` and `openai` are the completions API.
BACKENDS = {"vllm": "/v1/completions", "openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}

#: A message of a conversation, as the chat API takes it.
Message = dict[str, Any]

MAX_ERROR_BYTES = 65536
MAX_ERROR_TEXT = 300


class _Delta(msgspec.Struct):
    role: str | None = None
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


def body(
    backend: str,
    model: str,
    prompt: str | list[Message],
    output_tokens: int,
    extra: dict[str, Any],
) -> bytes:
    """Build the body of a streaming request; `extra` goes in last and wins."""
    request: dict[str, Any] = {"model": model}
    if backend == "openai-chat":
        request["messages"] = prompt
        request["max_completion_tokens"] = output_tokens
    else:
        request["prompt"] = prompt
        request["max_tokens"] = output_tokens
    request |= {"stream": True, "stream_options": {"include_usage": True}} | extra
    return msgspec.json.encode(request)


def head(authority: str, target: str, headers: dict[str, str], length: int) -> bytes:
    """Build the head of a POST of `length` bytes of JSON."""
    fields = {"host": authority, "content-type": "application/json", "accept": "text/event-stream"}
    fields |= {name.lower(): value for name, value in headers.items()} | {"content-length": str(length)}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    reasoning: str
    token: bool  # whether the chunk stands for a token


def _read(choice: _Choice) -> _Said:
    """Tell what a chunk says.

    A chunk without text is a token whose text is held back (half a character), unless it only opens the answer with the
    role or ends it with a finish_reason: those come before the first and after the last token.
    """
    delta = choice.delta
    if delta is None:
        text = choice.text or ""
        return _Said(text, "", bool(text) or choice.finish_reason is None)
    text = delta.content if isinstance(delta.content, str) else ""
    reasoning = delta.reasoning_content or delta.reasoning
    reasoning = reasoning if isinstance(reasoning, str) else ""
    spoke = bool(text or reasoning or delta.tool_calls)
    return _Said(text, reasoning, spoke or (choice.finish_reason is None and delta.role is None))


class Answer(Sink):
    """Collects one streamed answer and becomes a record. `start` must be set before bytes come."""

    def __init__(self) -> None:
        self.start = 0.0
        self.failure: Failure | None = None
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.times: list[float] = []  # when each chunk with a token came
        self._status = 0
        self._stream = False
        self._finish_reason: Any = None
        self._last = 0.0  # when the last chunk came
        self._ended: float | None = None
        self._usage = _Usage()
        self._events = Events()
        self._error = b""

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status
        self._stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")

    def body(self, data: bytes, now: float) -> None:
        if self._status == 200 and self._stream:
            for payload in self._events.feed(data):
                self._event(payload, now)
        elif len(self._error) < MAX_ERROR_BYTES:
            self._error += data

    def end(self, now: float) -> None:
        self._ended = now
        if self._status != 200:
            self.fail(f"http {self._status}", _error_text(self._error) or "no message")
        elif not self._stream:
            self.fail("no stream", f"the answer is not an event stream: {_error_text(self._error)}")
        else:
            for payload in self._events.flush():
                self._event(payload, now)
            if self._finish_reason is None:
                self.fail("broken stream", "the stream ended without a finish_reason")
            elif not self.times:
                self.fail("empty answer", f"no token came; finish_reason {self._finish_reason!r}")

    def broken(self, reason: str, now: float) -> None:
        self._ended = now
        self.fail("broken stream" if self._status else "no answer", reason)

    def fail(self, kind: str, message: str) -> None:
        """Note a failure; the first one is the cause."""
        if self.failure is None:
            self.failure = Failure(kind, message[:MAX_ERROR_TEXT])

    def _event(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            return
        try:
            chunk = _decode_chunk(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.fail("unreadable chunk", f"{error}: {payload[:100]!r}")
            return
        if chunk.error is not None or chunk.object == "error":
            self.fail("error in stream", _error_text(payload))
            return
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices:
            said = _read(choice)
            self._last = now
            if said.token:
                self.times.append(now)
            if said.text:
                self.text.append(said.text)
            if said.reasoning:
                self.reasoning.append(said.reasoning)
            if choice.finish_reason is not None:
                self._finish_reason = choice.finish_reason

    def record(
        self, *, finished: float, queue_time: float, prompt_tokens: int, asked_tokens: int = 0, id: str = ""
    ) -> Record:
        """Return the record; `prompt_tokens` is the client's own count, used where the server gives none.

        Output tokens come from the server's usage, else one a chunk is assumed (`runner` may count them better).
        """
        ended = finished if self._ended is None else self._ended
        if self.failure is not None:
            return Record(start=self.start, finished=ended, queue_time=queue_time, failure=self.failure, id=id)
        counted = self._usage.completion_tokens
        source: TokensFrom = "usage" if counted else "chunks"
        return Record(
            start=self.start,
            finished=ended,
            queue_time=queue_time,
            prompt_tokens=self._usage.prompt_tokens or prompt_tokens,
            output_tokens=counted or len(self.times),
            asked_tokens=asked_tokens,
            tokens_from=source,
            ttft=self.times[0] - self.start,
            itl=tuple(b - a for a, b in zip(self.times, self.times[1:], strict=False)),
            latency=self._last - self.start,
            text="".join(self.text),
            reasoning="".join(self.reasoning),
            id=id,
        )


def _error_text(raw: bytes) -> str:
    """Find the message in an error body of any shape; the raw text where there is none."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace").strip()[:MAX_ERROR_TEXT]
    if isinstance(value, dict):
        for key in ("error", "message", "detail"):
            found = value.get(key)
            if isinstance(found, dict):
                found = found.get("message", found)
            if found:
                return str(found)
    return str(value)
