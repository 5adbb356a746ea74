"""HTTP responses in pieces of every size."""

from __future__ import annotations

import pytest

from octavo.benchmarks.reader import Malformed, ResponseReader

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1;x=y\r\n \r\n00A\r\n0123456789\r\n0\r\ntrailer: 1\r\n\r\n"
)
COUNTED = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\nRetry-After: 1\r\n\r\nwait"


class Seen:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.text = b""
        self.ended: float | None = None
        self.reason: str | None = None

    def head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status, self.headers = status, headers

    def body(self, data: bytes, now: float) -> None:
        assert data
        self.text += data

    def end(self, now: float) -> None:
        assert self.ended is None
        self.ended = now

    def broken(self, reason: str, now: float) -> None:
        self.reason = reason


def read(data: bytes, size: int) -> tuple[Seen, ResponseReader]:
    seen = Seen()
    reader = ResponseReader(seen)
    for number, at in enumerate(range(0, len(data), size)):
        reader.feed(data[at : at + size], float(number))
    return seen, reader


@pytest.mark.parametrize("size", range(1, 200))
def test_pieces_of_any_size(size: int) -> None:
    seen, reader = read(CHUNKED, size)
    assert (seen.status, seen.text, seen.headers[b"content-type"]) == (200, b"hello 0123456789", b"text/event-stream")
    assert reader.done and reader.keep_alive
    assert seen.ended == float((len(CHUNKED) - 1) // size)  # not before the last byte
    seen, reader = read(COUNTED, size)
    assert (seen.status, seen.text, seen.headers[b"retry-after"]) == (429, b"wait", b"1")
    assert reader.done


def test_a_body_without_length_lasts_until_the_peer_closes() -> None:
    seen, reader = read(b"HTTP/1.1 200 OK\r\n\r\nsome", 7)
    assert not reader.done
    assert reader.eof(9.0)
    assert (seen.text, seen.ended, reader.keep_alive) == (b"some", 9.0, False)


@pytest.mark.parametrize("cut", [10, 60, len(CHUNKED) - 1])
def test_a_cut_response_is_not_complete(cut: int) -> None:
    seen, reader = read(CHUNKED[:cut], cut)
    assert not reader.eof(1.0)
    assert seen.ended is None


def test_keep_alive_is_what_the_head_says() -> None:
    assert not read(b"HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n", 99)[1].keep_alive
    assert not read(b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", 99)[1].keep_alive
    assert read(b"HTTP/1.1 204 No Content\r\n\r\n", 99)[1].done


def test_interim_responses_are_passed_over() -> None:
    assert read(b"HTTP/1.1 100 Continue\r\n\r\n" + COUNTED, 5)[0].status == 429


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n", COUNTED + b"more",
     CHUNKED[: CHUNKED.index(b"5\r\n")] + b"zz\r\n", CHUNKED.replace(b"hello\r\n", b"hello!!!!!")],
)  # fmt: skip
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data, len(data))
