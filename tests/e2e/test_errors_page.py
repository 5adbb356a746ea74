"""The tables of docs/errors.md, row by row, against running servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.frontend.processes import Programs
from bench.frontend.processes import running as scripted
from octavo.edge_config import EdgeConfig
from tests.e2e.frontend import bare_frontend
from tests.e2e.server import Server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
SAYS = [{"role": "user", "content": "hi"}]
GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": SAYS, "max_tokens": 4}),
    "completions": ("/v1/completions", {"prompt": "hi", "max_tokens": 4}),
    "messages": ("/v1/messages", {"messages": SAYS, "max_tokens": 4}),
    "responses": ("/v1/responses", {"input": "hi", "max_output_tokens": 4}),
}
COLUMNS = ("what", "request", "header", "sent", "status", "`type`", "`code`", "`param`", "Anthropic")


@dataclass(frozen=True)
class Row:
    """One request of a table, and what it gets."""

    what: str
    request: str
    header: str
    sent: str
    status: int
    kind: str
    code: str
    param: str
    anthropic: str


def tables() -> dict[str, list[Row]]:
    """Return the rows of each section, one for each request that a line names."""
    found: dict[str, list[Row]] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
        assert tuple(cell.strip() for cell in head.strip("|").split("|")) == COLUMNS
        rows = found.setdefault(title, [])
        for line in lines:
            cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
            assert len(cells) == len(COLUMNS), line
            what, requests, header, sent, status, *rest = cells
            for request in requests.replace("all", ", ".join(GOOD)).split(", "):
                rows.append(Row(what, request, header.strip("`"), sent.strip("`"), int(status), *rest))
    return found


TABLES = tables()
WRONG, LIMITS, NOT_NOW = TABLES.values()


def identify(row: Row) -> str:
    """Return a name for a row."""
    return re.sub(r"[^ -~]|\[|\]", "", f"{row.request} {row.header}{row.sent}"[:70])


def content(row: Row) -> tuple[str, str, bytes | None]:
    """Return method, path and body of a row's request."""
    if row.request not in GOOD:
        method, _, path = row.request.partition(" ")
        return method, path, None
    path, good = GOOD[row.request]
    sent = re.sub(r"(.)×(\d+)", lambda found: found[1] * int(found[2]), row.sent)
    if sent == "(nothing)":
        return "POST", path, b""
    try:
        fields = json.loads(sent or "{}")
    except json.JSONDecodeError:
        return "POST", path, sent.encode()
    return "POST", path, json.dumps({**good, **fields} if isinstance(fields, dict) else fields).encode()


def check(url: str, row: Row) -> None:
    """Send a row's request and compare."""
    method, path, body = content(row)
    headers = {"content-type": "application/json"} if body is not None else {}
    if row.header:
        name, _, value = row.header.partition(": ")
        headers[name] = value
    answer = httpx.request(method, f"{url}{path}", content=body, headers=headers, timeout=30)
    assert answer.status_code == row.status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    if path.startswith("/v1/messages"):
        assert set(told) == {"type", "error", "request_id"}
        assert (told["type"], told["error"]["type"]) == ("error", row.anthropic), told
        assert told["request_id"] == answer.headers["request-id"]
    else:
        assert set(told) == {"error"} and set(told["error"]) == {"message", "type", "param", "code"}
        error = told["error"]
        assert (error["type"], error["code"], error["param"] or "") == (row.kind, row.code, row.param), told
        if row.code in ("invalid_value", "missing_field"):
            assert row.param in error["message"], told
    assert len(told["error"]["message"]) > 10
    assert ("retry-after" in answer.headers) == (row.status in (429, 503))
    assert ("allow" in answer.headers) == (row.status == 405)
    assert ("www-authenticate" in answer.headers) == (row.status == 401)


@pytest.mark.parametrize("row", WRONG, ids=identify)
def test_what_is_wrong_with_a_request(surface: Server, row: Row) -> None:
    check(surface.url, row)


@pytest.fixture(scope="module")
def limited(tiny: Path, programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A frontend with keys and small limits, whose engine takes three seconds a step."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("metrics metrics-key\n", encoding="utf-8")
    edge = EdgeConfig(max_body_bytes=4096, request_timeout_s=1.0)
    settings = {"api_keys": ["client-key"], "api_key_file": str(keys), "edge": edge}
    flags = ("--step-time", "3000", "--vocab-size", "288", "--reject", "overloaded:prompt>200")
    with scripted(programs, tiny, *flags, settings=settings) as stack:
        yield f"http://127.0.0.1:{stack.port}"


@pytest.mark.parametrize("row", LIMITS, ids=identify)
def test_what_the_server_does_not_allow(limited: str, row: Row) -> None:
    check(limited, row)


@pytest.fixture(scope="module")
def engineless(tiny: Path) -> Iterator[str]:
    """A frontend to which no engine has connected."""
    with bare_frontend(tiny, EdgeConfig()) as frontend:
        yield f"http://127.0.0.1:{frontend.port}"


@pytest.mark.parametrize("row", NOT_NOW, ids=identify)
def test_what_the_server_cannot_do_now(engineless: str, row: Row) -> None:
    check(engineless, row)


def test_a_missing_key_names_both_headers(limited: str) -> None:
    message = httpx.get(f"{limited}/v1/models", timeout=10).json()["error"]["message"]
    assert "Authorization: Bearer" in message and "x-api-key" in message
