"""How fast /health is while the frontend has more work than it can do."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from bench.frontend.processes import Stack

__all__ = ["measure_health"]

#: Connections of the load: more than the frontend keeps up with on any small machine.
_CONNECTIONS = 256
_GAP_S = 0.002


def measure_health(stack: Stack, bodies: Sequence[Mapping[str, Any]], probes: int) -> dict[str, float]:
    """Ask for /health over and over on one connection beside a closed loop of chats; return the figures by name."""
    file = stack.folder / "bodies.jsonl"
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    command = [stack.programs.load, "--address", f"127.0.0.1:{stack.port}", "--path", "/v1/chat/completions"]
    flags = ["--bodies", str(file), "--connections", str(_CONNECTIONS), "--seconds", "600"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
        try:
            times = sorted(_probe(stack.port, probes))
            if load.poll() is not None:
                raise ConfigError("octavo-load ended before /health was measured")
        finally:
            load.kill()
    return {
        "health_p50_ms": 1e3 * statistics.median(times),
        "health_p99_ms": 1e3 * times[min(len(times) - 1, round(0.99 * len(times)))],
    }


def _probe(port: int, probes: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    times = []
    try:
        for number in range(probes + probes // 10):
            began = time.perf_counter()
            connection.request("GET", "/health")
            status = connection.getresponse()
            status.read()
            if status.status != 200:
                raise ConfigError(f"/health said {status.status}")
            if number >= probes // 10:  # after the load has begun in earnest
                times.append(time.perf_counter() - began)
            time.sleep(_GAP_S)
    finally:
        connection.close()
    return times
