"""The OpenAPI document against the server that serves it. `OCTAVO_SCHEMATHESIS_S=600` runs schemathesis for so long."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server import Server
from tests.e2e.test_bad_requests import still_serves

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
SECONDS = int(os.environ.get("OCTAVO_SCHEMATHESIS_S", "8"))
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
#: Would end the server.
ENDS = ("POST", "/shutdown")
ABSENT = ("/start_draft_weight_update", "/reset_mm_cache", "/reset_encoder_cache")


@pytest.fixture(scope="module")
def document(surface: Server) -> dict[str, Any]:
    """The document that the server serves."""
    answer = surface.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    return dict(answer.json())


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of every operation."""
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_the_document_in_docs_is_the_one_that_is_served(document: dict[str, Any]) -> None:
    assert document == json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert document["openapi"].startswith("3.1.")


def test_the_page_shows_it_without_anything_from_elsewhere(surface: Server) -> None:
    page = surface.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert 'fetch("openapi.json")' in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_paths_answer_the_methods_that_are_described_and_no_others(surface: Server, document: dict[str, Any]) -> None:
    described = {(method, path) for method, path, _ in operations(document)}
    with httpx.Client(base_url=surface.url, timeout=30) as client:
        for path in document["paths"]:
            for method in METHODS:
                if (method, path) == ENDS:
                    continue
                # No body: what would change the server's state is refused, or is a pause that is undone.
                target = path.replace("{name}", "nobody").replace("{id}", "resp_nobody")
                answer = client.request(method, target)
                known = (method, path) in described
                assert (answer.status_code == 405) != known, (method, path, answer.status_code)
                if not known:
                    allowed = {word.strip() for word in answer.headers["allow"].split(",")} - {"HEAD"}
                    assert allowed == {method for method, other in described if other == path}, (path, allowed)
            client.post("/wake_up")
            client.post("/resume")


def test_every_example_is_answered(surface: Server, document: dict[str, Any]) -> None:
    count = 0
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            answer = httpx.request(method, f"{surface.url}{path}", json=content["example"], timeout=60)
            assert answer.status_code == 200, (path, answer.text)
            assert "x-octavo-warning" not in answer.headers, path
            count += 1
    assert count >= 12


def test_unknown_fields_are_named_by_every_route_that_reads_a_body(surface: Server, document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if not content or (operation["tags"] == ["pooling"] and "example" not in content):
            continue  # a model that makes tokens refuses it; tests/e2e/test_pooling.py has it
        body = {**content.get("example", {}), "no_such_field": 1}
        answer = httpx.request(method, f"{surface.url}{path}", json=body, timeout=60)
        if operation["tags"] == ["control"]:  # these refuse what they do not know
            assert answer.status_code == 400, path
        else:
            assert answer.headers.get("x-octavo-warning") == "ignored fields: no_such_field", (path, answer.text)


@pytest.mark.parametrize("path", ABSENT)
def test_what_octavo_does_not_have_says_so(surface: Server, path: str) -> None:
    answer = httpx.post(f"{surface.url}{path}", timeout=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_implemented")


@pytest.mark.timeout(SECONDS + 280)
def test_schemathesis_finds_nothing_that_contradicts_the_document(surface: Server) -> None:
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    settings = ["--config-file", str(HERE / "schemathesis.toml")]
    run = ["run", f"{surface.url}/openapi.json", "--max-time", str(SECONDS), "--no-color"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.e2e.schemathesis_hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *settings, *run], capture_output=True, text=True, env=environment, check=False)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]
    counted = re.search(r"(\d+) generated, (\d+) passed\n", done.stdout)
    assert counted is not None and counted[1] == counted[2] and int(counted[1]) > 100
    assert still_serves(surface)
