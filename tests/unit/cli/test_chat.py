"""A conversation with a scripted server."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rich.console import Console

from octavo.cli import main
from octavo.cli.api import Api
from octavo.cli.chat import Chat
from octavo.errors import OctavoError

#: What the server streams for one request: chunks, or an error status and its body.
Script = list[dict[str, Any]] | tuple[int, dict[str, Any]]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields}]}


class Scripted(ThreadingHTTPServer):
    """Answers each POST with the next script and keeps the bodies that it got."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts: list[Script] = []
        self.bodies: list[dict[str, Any]] = []
        self.whole = True  # False: the stream ends without [DONE]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Scripted

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, json.dumps({"data": [{"id": "first"}, {"id": "second", "max_model_len": 128}]}).encode())

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        script = self.server.scripts.pop(0)
        if isinstance(script, tuple):
            self._answer(script[0], json.dumps(script[1]).encode())
            return
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in script]
        self._answer(200, ("".join(events) + ("data: [DONE]\n\n" if self.server.whole else "")).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as scripted:
        thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join(5)


def conversation(server: Scripted) -> tuple[Chat, io.StringIO]:
    shown = io.StringIO()
    return Chat(Api(server.url), "first", Console(file=shown, width=200), {"max_tokens": 5}), shown


def test_history_goes_along_and_thoughts_do_not(server: Scripted) -> None:
    server.scripts = [[delta(reasoning="hm"), delta(content="Hel"), delta(content="lo")], [delta(content="Bye")]]
    chat, shown = conversation(server)
    chat.system("be short")
    chat.turn("hi")
    chat.turn("and?")
    assert shown.getvalue() == "hm\n\nHello\nBye\n"
    assert server.bodies[0]["max_tokens"] == 5
    assert server.bodies[1]["messages"] == [
        {"role": "system", "content": "be short"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "and?"},
    ]
    chat.reset()
    assert chat.messages == [{"role": "system", "content": "be short"}]


def test_a_refused_message_is_forgotten(server: Scripted) -> None:
    server.scripts = [(400, {"error": {"message": "too long"}})]
    chat, _ = conversation(server)
    with pytest.raises(OctavoError, match="answered 400: too long"):
        chat.turn("hi")
    assert chat.messages == []


def test_a_stream_that_breaks_is_an_error(server: Scripted) -> None:
    server.whole = False
    server.scripts = [[delta(content="Hel")]]
    with pytest.raises(OctavoError, match="ended the answer early"):
        conversation(server)[0].turn("hi")


def test_one_question(server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    server.scripts = [[delta(content="4"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}]]
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert main(["chat", "--url", server.url, "--model-name", "second", "-q", "2+2?", "--stats"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("4\n3 tokens in, 1 out, TTFT ")
    assert server.bodies[0]["model"] == "second"
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "2+2?\n\nfrom a pipe"}]


def test_complete_prints_how_the_text_goes_on(server: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server.scripts = [[{"choices": [{"text": " upon"}]}, {"choices": [{"text": " a time"}]}]]
    assert main(["complete", "--url", server.url, "-q", "Once", "--max-tokens", "2"]) == 0
    assert capsys.readouterr().out == " upon a time\n"
    assert server.bodies[0] == {"model": "first", "prompt": "Once", "max_tokens": 2, "stream": True}


def test_models_of_a_server(server: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--url", server.url]) == 0
    assert capsys.readouterr().out == "first\nsecond   context 128\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--url", "http://127.0.0.1:9"], 1, "no server answers at http://127.0.0.1:9"),
        (["--url", "ftp://x"], 1, "must be an address such as"),
        (["m", "--url", "http://127.0.0.1:9"], 2, "give MODEL or --url, not both"),
        (["--dtype", "float32"], 2, "--dtype is for a server of one's own: give MODEL too"),
        (["m", "--port", "none"], 2, "--port none: must be a count"),
    ],
)
def test_what_cannot_work_is_one_line(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *words, "-q", "hi"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("octavo: ")
    assert said in shown


def test_a_model_that_is_not_served_is_named_beside_those_that_are(
    server: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "--url", server.url, "--model-name", "third", "-q", "hi"]) == 1
    assert "does not serve third; it serves first, second" in capsys.readouterr().err
