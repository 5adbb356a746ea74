"""Traces over OTLP/HTTP, as a collector gets them: joined to the caller's, vLLM's attributes, the engine's times."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.frontend.processes import Programs, Stack, running
from bench.frontend.work import prepare_tokenizer
from tests.e2e.server import wait_for

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STEP_MS = 20


def fields(data: bytes) -> dict[int, list[Any]]:
    """Decode one protobuf message: field number -> values; messages and strings stay bytes."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, kind = divmod(varint(), 8)
        value: int | bytes
        if kind == 0:
            value = varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = data[at : at + size]
            at += size
        found.setdefault(number, []).append(value)
    return found


def value_of(any_value: bytes) -> object:
    """Return what an AnyValue holds."""
    ((number, (value,)),) = fields(any_value).items()
    if number == 4:
        return struct.unpack("<d", value)[0]
    return value.decode() if number == 1 else value


def attributes(messages: list[bytes]) -> dict[str, object]:
    """Return what a list of KeyValue says."""
    pairs = [fields(message) for message in messages]
    return {pair[1][0].decode(): value_of(pair[2][0]) for pair in pairs}


@dataclass(frozen=True)
class Span:
    """One span, with the attributes of its process."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    begin: int  # in nanoseconds
    end: int
    attributes: dict[str, object]
    resource: dict[str, object]


def spans_of(body: bytes) -> Iterator[Span]:
    """Read an ExportTraceServiceRequest."""
    for of_resource in map(fields, fields(body)[1]):
        resource = attributes(fields(of_resource[1][0]).get(1, []))
        for scope in map(fields, of_resource[2]):
            for span in map(fields, scope[2]):
                begin, end = (struct.unpack("<Q", span[number][0])[0] for number in (7, 8))
                ids = (span.get(number, [b""])[0].hex() for number in (1, 2, 4))
                yield Span(span[5][0].decode(), *ids, span[6][0], begin, end, attributes(span.get(9, [])), resource)


@dataclass
class Collector:
    """A collector that keeps what it gets."""

    spans: list[Span] = field(default_factory=list)
    url: str = ""

    def of(self, trace: str) -> dict[str, Span]:
        """Return the spans of a trace by their names."""
        return {span.name: span for span in list(self.spans) if span.trace == trace}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector on a port of its own."""
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
            kept.spans.extend(spans_of(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield kept
        server.shutdown()
        thread.join()


def ask(stack: Stack, trace: str, flags: str = "01", path: str = "/v1/completions") -> None:
    """Ask for four tokens within a trace."""
    body = {"model": "mock", "max_tokens": 4, "ignore_eos": True, "temperature": 0.5, "top_p": 0.9}
    said = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}
    headers = {"traceparent": f"00-{trace}-{CALLER}-{flags}", "x-request-id": f"id-{trace[:4]}"}
    answer = httpx.post(f"http://127.0.0.1:{stack.port}{path}", json=body | said, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text


def test_traces_reach_the_collector_joined_and_those_of_the_end_too(
    programs: Programs, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    prepare_tokenizer(tmp_path / "tokenizer")
    settings = {"otlp_traces_endpoint": collector.url}
    last, silent = TRACE[::-1], TRACE.replace("0af7", "1111")
    with running(programs, tmp_path / "tokenizer", "--step-time", str(STEP_MS), settings=settings) as stack:
        ask(stack, TRACE)
        wait_for(lambda: len(collector.of(TRACE)) == 4, 20, "the spans of a request")
        ask(stack, silent, flags="00")  # its caller does not record
        ask(stack, last, path="/v1/chat/completions")
    assert len(collector.of(last)) == 4
    assert not collector.of(silent)
    check_joined(collector.of(TRACE))
    assert collector.of(last)["llm_request"].attributes["gen_ai.request.id"] == f"chatcmpl-id-{last[:4]}"


def check_joined(spans: dict[str, Span]) -> None:
    """Hold the spans of one request against what is known of it."""
    whole = spans.pop("llm_request")
    assert (whole.parent, whole.kind) == (CALLER, 2)
    assert abs(whole.end / 1e9 - time.time()) < 60
    assert whole.resource["service.name"] == "octavo"
    said = dict(whole.attributes)
    assert {
        name: said[f"gen_ai.{name}"] for name in ("usage.completion_tokens", "request.max_tokens", "request.n")
    } == {
        "usage.completion_tokens": 4,
        "request.max_tokens": 4,
        "request.n": 1,
    }
    assert (said["gen_ai.request.temperature"], said["gen_ai.request.top_p"]) == (0.5, 0.9)
    assert said["gen_ai.request.id"] == f"cmpl-id-{TRACE[:4]}"
    assert said["gen_ai.response.model"] == "mock"
    assert said["gen_ai.usage.prompt_tokens"] >= 1  # type: ignore[operator]
    times = {name.removeprefix("gen_ai.latency."): value for name, value in said.items() if ".latency." in name}
    assert set(times) == {
        "e2e",
        "time_in_queue",
        "time_in_model_inference",
        "time_to_first_token",
        "time_in_model_prefill",
        "time_in_model_decode",
    }
    assert times["time_in_model_decode"] > 2 * STEP_MS / 1e3  # type: ignore[operator]
    assert set(spans) == {"engine.queue", "engine.prefill", "engine.decode"}
    assert {span.parent for span in spans.values()} == {whole.id}
    ordered = [spans[f"engine.{name}"] for name in ("queue", "prefill", "decode")]
    marks = [whole.begin, *(mark for span in ordered for mark in (span.begin, span.end)), whole.end]
    assert marks == sorted(marks)
    assert ordered[2].end - ordered[2].begin > 2 * STEP_MS * 1e6


def test_a_collector_that_is_away_holds_nothing_up(programs: Programs, tmp_path: Path) -> None:
    prepare_tokenizer(tmp_path / "tokenizer")
    settings = {"otlp_traces_endpoint": "http://127.0.0.1:9"}
    with running(programs, tmp_path / "tokenizer", "--step-time", "1", settings=settings) as stack:
        ask(stack, TRACE)
        ended = time.monotonic()
    assert time.monotonic() - ended < 10
