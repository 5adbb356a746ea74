"""Events in pieces of every size."""

from __future__ import annotations

import pytest

from octavo.benchmarks.sse import Events

TEXT = b': ping\n\ndata: {"a": 1}\n\nevent: x\nid: 3\ndata:two\ndata: lines\r\n\r\ndata: \xc3\xa9\n\ndata: [DONE]\n\n'
PAYLOADS = [b'{"a": 1}', b"two\nlines", b"\xc3\xa9", b"[DONE]"]


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
def test_pieces_of_any_size(size: int) -> None:
    events = Events()
    found = [payload for at in range(0, len(TEXT), size) for payload in events.feed(TEXT[at : at + size])]
    assert found == PAYLOADS
    assert events.flush() == []


def test_an_event_ends_with_its_blank_line() -> None:
    events = Events()
    assert events.feed(b"data: 1\n") == []
    assert events.feed(b"\ndata: 2") == [b"1"]
    assert events.flush() == [b"2"]
