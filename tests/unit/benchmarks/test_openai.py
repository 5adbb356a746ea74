"""Bodies, and what becomes of streamed answers. Time is what the test says it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.benchmarks import openai
from octavo.benchmarks.openai import Answer
from octavo.benchmarks.record import Record

STREAM = {b"content-type": b"text/event-stream; charset=utf-8"}


def answer(*chunks: tuple[float, Any], status: int = 200, headers: dict[bytes, bytes] = STREAM) -> Record:
    """Play chunks at their times to an answer that began at 10; None closes the body, "cut" breaks it."""
    found = Answer()
    found.start = 10.0
    found.head(status, headers)
    for now, chunk in chunks:
        if chunk is None:
            found.end(now)
        elif chunk == "cut":
            found.broken("the connection closed", now)
        else:
            raw = chunk if isinstance(chunk, bytes) else f"data: {json.dumps(chunk)}\n\n".encode()
            found.body(raw, now)
    return found.record(finished=99.0, queue_time=0.25, prompt_tokens=5, id="7")


def text(piece: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish}]}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(prompt: int, output: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}}


DONE = b"data: [DONE]\n\n"


def test_times_of_a_chat_answer() -> None:
    record = answer(
        (10.1, delta(role="assistant", content="")),  # opens the answer; no token yet
        (10.5, delta(content="Hel")),
        (10.7, delta(content="lo")),
        (10.8, delta(content="")),  # a token whose text is held back
        (11.0, delta("stop")),  # after the last token
        (11.1, usage(20, 4)),
        (11.1, DONE),
        (11.2, None),
    )
    assert record.failure is None
    assert record.ttft == pytest.approx(0.5)
    assert record.itl == pytest.approx((0.2, 0.1))
    assert record.latency == pytest.approx(1.0)  # to the last chunk of the answer, not to usage or [DONE]
    assert record.finished == 11.2
    assert (record.prompt_tokens, record.output_tokens, record.tokens_from) == (20, 4, "usage")
    assert (record.text, record.queue_time, record.id) == ("Hello", 0.25, "7")
    assert record.tpot == pytest.approx(0.5 / 3)


def test_reasoning_and_tool_calls_are_tokens() -> None:
    record = answer(
        (10.2, delta(role="assistant", reasoning_content="hm")),
        (10.4, delta(reasoning="hm")),
        (10.6, delta(tool_calls=[{"index": 0}])),
        (10.8, delta("tool_calls", content="x")),
        (10.9, None),
    )
    assert record.ttft == pytest.approx(0.2) and len(record.itl) == 3
    assert (record.text, record.reasoning) == ("x", "hmhm")


def test_completions_and_events_that_share_a_read() -> None:
    both = f"data: {json.dumps(text('a'))}\n\ndata: {json.dumps(text('b'))}\n\n".encode()
    record = answer((10.5, both), (11.0, text("c", "length")), (11.0, None))
    assert record.ttft == pytest.approx(0.5) and record.itl == pytest.approx((0.0, 0.5))
    assert (record.output_tokens, record.tokens_from, record.prompt_tokens) == (3, "chunks", 5)  # no usage came


def test_usage_in_every_chunk_counts_once() -> None:
    first, last = text("a"), text("b", "stop")
    first["usage"], last["usage"] = usage(9, 1)["usage"], usage(9, 6)["usage"]
    record = answer((10.5, first), (11.0, last), (11.0, None))
    assert (record.prompt_tokens, record.output_tokens) == (9, 6)


@pytest.mark.parametrize(
    ("chunks", "kind", "says"),
    [
        ([(10.5, text("a")), (10.6, "cut")], "broken stream", "closed"),
        ([(10.5, text("a")), (10.6, None)], "broken stream", "finish_reason"),
        ([(10.5, text("a")), (10.5, DONE), (10.6, None)], "broken stream", "finish_reason"),
        ([(10.5, text("a")), (10.6, {"error": {"message": "boom"}}), (10.6, DONE), (10.7, None)],
         "error in stream", "boom"),
        ([(10.5, {"object": "error", "message": "old style"}), (10.7, None)], "error in stream", "old style"),
        ([(10.5, b"data: {nonsense\n\n"), (10.6, None)], "unreadable chunk", "nonsense"),
        ([(10.5, text("", "stop")), (10.6, None)], "empty answer", "stop"),
        ([(10.6, None)], "broken stream", "finish_reason"),
    ],
)  # fmt: skip
def test_a_stream_that_goes_wrong_has_failed(chunks: list[tuple[float, Any]], kind: str, says: str) -> None:
    record = answer(*chunks)
    assert record.failure is not None and record.failure.kind == kind and says in record.failure.message
    assert record.ttft is None and record.latency is None and record.output_tokens == 0
    assert record.finished == chunks[-1][0]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, {"error": {"message": "no model X", "code": 404}}, "no model X"),
        (422, {"detail": "bad"}, "bad"),
        (429, {"message": "slow down"}, "slow down"),
        (503, b"<html>down</html>", "<html>down</html>"),
        (500, b"", "no message"),
    ],
)
def test_http_errors_are_counted_by_status(status: int, body: Any, says: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    chunks = [(10.1, raw)] if raw else []
    record = answer(*chunks, (10.2, None), status=status, headers={})
    assert record.failure is not None
    assert (record.failure.kind, record.failure.message) == (f"http {status}", says)


def test_an_answer_in_one_piece_has_no_times_to_measure() -> None:
    record = answer((10.1, b'{"choices": []}'), (10.2, None), headers={b"content-type": b"application/json"})
    assert record.failure is not None and record.failure.kind == "no stream"


def test_no_answer_at_all() -> None:
    found = Answer()
    found.broken("gone", 11.0)
    record = found.record(finished=12.0, queue_time=0.0, prompt_tokens=1)
    assert record.failure is not None and record.failure.kind == "no answer"


def test_bodies() -> None:
    extra = {"temperature": 0, "max_tokens": 3}
    plain = json.loads(openai.body("vllm", "m", "hi", 9, extra))
    assert plain == {"model": "m", "prompt": "hi", "max_tokens": 3, "temperature": 0, "stream": True,
                     "stream_options": {"include_usage": True}}  # fmt: skip
    chat = json.loads(openai.body("openai-chat", "m", [{"role": "user", "content": "hi"}], 9, {}))
    assert chat["messages"] == [{"role": "user", "content": "hi"}] and chat["max_completion_tokens"] == 9


def test_head_lets_the_user_override() -> None:
    head = openai.head("h:1", "/v1/x", {"Accept": "*/*", "X-A": "b"}, 12).decode()
    assert head.startswith("POST /v1/x HTTP/1.1\r\nhost: h:1\r\n") and head.endswith("\r\n\r\n")
    assert "accept: */*\r\n" in head and "x-a: b\r\n" in head and "content-length: 12\r\n" in head
