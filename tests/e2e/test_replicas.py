"""Two complete servers on following ports, one of which dies."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import psutil

from tests.e2e.server import running, wait_for

FLAGS = ("--served-model-name", "tiny", "--dtype", "float32", "--kv-cache-memory-bytes", "16M")


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that are free now."""
    for port in range(21000, 60000, 7):
        probes = []
        try:
            probes = [socket.create_server(("127.0.0.1", port + index)) for index in range(count)]
            return port
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
    raise AssertionError("no free ports")


def test_one_server_a_rank_and_only_the_dead_one_is_restarted(tiny: Path) -> None:
    port = free_ports(3)
    flags = ("--data-parallel-size", "2", "--data-parallel-multi-port-external-lb", "--port", str(port))
    status = ("--data-parallel-supervisor-port", str(port + 2))
    with running(tiny, *FLAGS, *flags, *status) as server:

        def get(index: int, path: str) -> httpx.Response:
            return httpx.get(f"http://127.0.0.1:{port + index}{path}", timeout=10)

        def answers(index: int) -> bool:
            body = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
            url = f"http://127.0.0.1:{port + index}/v1/completions"
            try:
                return httpx.post(url, json=body, timeout=30).status_code == 200
            except httpx.HTTPError:
                return False

        assert get(2, "/ready").status_code == 200
        assert [get(index, "/ready").status_code for index in range(2)] == [200, 200]
        assert answers(0)
        assert answers(1)
        survivor = server.pid("replica-0")
        psutil.Process(server.pid("replica-1")).kill()
        wait_for(lambda: get(2, "/ready").status_code == 503, 20, "one is missing")
        assert get(2, "/health").status_code == 200
        assert answers(0)
        wait_for(lambda: get(2, "/ready").status_code == 200, 60, "both are back")
        assert [rank["restarts"] for rank in get(2, "/ready").json()["ranks"]] == [0, 1]
        assert answers(1)
        assert server.pid("replica-0") == survivor
