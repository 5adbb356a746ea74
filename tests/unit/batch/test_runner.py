"""A batch against a scripted server: concurrency, refusals, what breaks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from octavo.batch import Journal, Lines, Target, run, runner
from octavo.benchmarks.connection import Server
from octavo.errors import OctavoError


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["prompt"]
        script = self.server
        with script.lock:
            script.tries[prompt] += 1
            script.keys.add(self.headers["authorization"])
            script.open += 1
            script.most = max(script.most, script.open)
            nth = script.tries[prompt]
        if not prompt.startswith("alone"):
            script.several.wait(5)
        with script.lock:
            script.open -= 1
        if prompt.startswith("busy") and nth < 3:
            self._answer(429 if nth == 1 else 503, b"{}", ("Retry-After", "0"))
        elif prompt.startswith("drop") and nth == 1:
            self.close_connection = True
        elif prompt.startswith("bad"):
            self._answer(400, b'{"error": {"message": "bad prompt", "code": "invalid_value"}}')
        elif prompt.startswith("never"):
            self._answer(503, b'{"error": {"message": "gone", "code": "unavailable"}}', ("Retry-After", "0"))
        else:
            self._answer(200, json.dumps({"text": prompt.upper()}).encode())

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Scripted(ThreadingHTTPServer):
    """Answers with the prompt in capitals; what a prompt begins with says what goes wrong first."""

    daemon_threads = True

    def __init__(self, several: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.tries: Counter[str] = Counter()
        self.keys: set[str | None] = set()
        self.open = self.most = 0
        self.several = threading.Barrier(several)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted(several=1) as scripted:
        thread = threading.Thread(target=scripted.serve_forever, args=(0.02,))
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


def answered(server: Scripted, folder: Path, prompts: list[str], concurrency: int = 3) -> list[dict[str, object]]:
    """Run a batch of prompts; return the results."""
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    line = {"url": "/v1/completions"}
    source.write_text("".join(json.dumps(line | {"custom_id": one, "body": {"prompt": one}}) + "\n" for one in prompts))
    target = Target(Server.parse(f"http://127.0.0.1:{server.server_address[1]}"), "k", concurrency)
    statuses: list[int] = []
    with Lines(source) as lines, Journal(output, lines) as journal:
        asyncio.run(run(lines, journal, target, statuses.append))
        journal.finish()
    results = [json.loads(text) for text in output.read_text().splitlines()]
    assert Counter(statuses) == Counter(one["response"]["status_code"] for one in results)
    return results


def test_all_are_answered_once_in_order_so_many_at_once(server: Scripted, tmp_path: Path) -> None:
    server.several = threading.Barrier(4)  # each waits until four are open
    prompts = [f"p{number}" for number in range(40)]
    results = answered(server, tmp_path, prompts, concurrency=4)
    assert [one["custom_id"] for one in results] == prompts
    assert results[7]["response"]["body"] == {"text": "P7"}  # type: ignore[index]
    assert server.tries == Counter(prompts)
    assert server.most == 4
    assert server.keys == {"Bearer k"}


def test_later_and_a_lost_connection_are_tried_again_and_a_refusal_is_not(server: Scripted, tmp_path: Path) -> None:
    results = answered(server, tmp_path, ["busy", "drop", "bad", "fine"])
    assert [one["response"]["status_code"] for one in results] == [200, 200, 400, 200]  # type: ignore[index]
    assert results[2]["error"] == {"code": "invalid_value", "message": "bad prompt"}
    assert (server.tries["busy"], server.tries["bad"], server.tries["fine"]) == (3, 1, 1)


def test_patience_ends_and_what_came_is_kept(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PATIENCE_S", 0.0)
    with pytest.raises(OctavoError, match=r"has not answered .*gone.* run the same command again"):
        answered(server, tmp_path, ["a", "b", "never"], concurrency=1)
    with Lines(tmp_path / "in.jsonl") as lines, Journal(tmp_path / "out.jsonl", lines) as journal:
        assert [number in journal for number in range(3)] == [True, True, False]
