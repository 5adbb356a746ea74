"""API keys, as a user gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.server import Server, running, start, stop, wait_for


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# who may look\nmetrics prometheus-key\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def locked(tiny: Path, keys: Path) -> Iterator[Server]:
    flags = ("--served-model-name", "tiny", "--kv-cache-memory-bytes", "16M", "--api-key-file", str(keys))
    with running(tiny, *flags, env={"OCTAVO_API_KEY": "client-key-1,client-key-2"}) as server:
        yield server


def client(server: Server, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60)


def status(server: Server, path: str, key: str | None) -> int:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(f"{server.url}{path}", headers=headers, timeout=10).status_code


def test_a_client_needs_a_key_and_probes_do_not(locked: Server) -> None:
    for key in ("client-key-1", "client-key-2"):
        with client(locked, key) as sdk:
            assert sdk.completions.create(model="tiny", prompt="a b", max_tokens=2).usage is not None
    with client(locked, "wrong-key") as sdk, pytest.raises(openai.AuthenticationError) as caught:
        sdk.completions.create(model="tiny", prompt="a b", max_tokens=2)
    assert caught.value.code == "invalid_api_key"
    assert [status(locked, path, None) for path in ("/health", "/ready", "/v1/models", "/metrics")] == [
        200,
        200,
        401,
        401,
    ]


def test_roles_come_from_the_file_and_change_with_it(locked: Server, keys: Path) -> None:
    assert status(locked, "/metrics", "prometheus-key") == 200
    assert status(locked, "/v1/models", "prometheus-key") == 403
    assert status(locked, "/metrics", "client-key-1") == 200
    keys.write_text("metrics prometheus-key-2\n", encoding="utf-8")
    wait_for(lambda: status(locked, "/metrics", "prometheus-key-2") == 200, 20, "the new key counts")
    assert status(locked, "/metrics", "prometheus-key") == 401
    keys.write_text("nobody x\n", encoding="utf-8")
    wait_for(lambda: "the keys of before stay" in locked.text(), 20, "the log tells of the file")
    assert status(locked, "/metrics", "prometheus-key-2") == 200


def test_keys_are_not_in_the_log(locked: Server) -> None:
    assert "client-key" not in locked.text()


def test_a_file_that_cannot_work_ends_the_start(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("boss a-long-key\n", encoding="utf-8")
    server = start(tiny, "--kv-cache-memory-bytes", "16M", "--api-key-file", str(path))
    try:
        assert server.process.wait(60) == 2
    finally:
        stop(server)
    assert '"boss" is no role' in server.text()
    assert "a-long-key" not in server.text()
