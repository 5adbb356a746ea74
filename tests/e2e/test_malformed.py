"""Requests that are wrong in every way a seeded generator knows, over all routes: none stays, none takes anything down.

`OCTAVO_MALFORMED=10000` sends so many, `OCTAVO_MALFORMED_SEED` others.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.e2e.malformed import Attempt, Malformed
from tests.e2e.raw_http import Answer, NotHttp, exchange
from tests.e2e.server import Server, wait_for
from tests.e2e.test_bad_requests import still_serves

COUNT = int(os.environ.get("OCTAVO_MALFORMED", "400"))
SEED = int(os.environ.get("OCTAVO_MALFORMED_SEED", "1"))
WARM = 900
#: By so much the memory of a process may grow between the first hundreds and the last; what the prefix cache and the
#: allocators keep is in it.
GROWTH_BYTES = {"frontend": 32 << 20, "engine": 16 << 20, "worker-0": 32 << 20}
TIMEOUT_S = 30.0
CLIENTS = 4
#: Refused by name, as 501 says: octavo does not have them.
ABSENT = ("/start_draft_weight_update", "/reset_mm_cache", "/reset_encoder_cache")


class Driver:
    """Sends attempts to a server and judges the answers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        place = urlsplit(server.url)
        self._address = (place.hostname or "", place.port or 0)
        self._malformed = Malformed(server.get("/openapi.json").json(), SEED)
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.faults: list[str] = []

    def run(self, numbers: range) -> None:
        """Send the attempts with these numbers, several at a time."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            for fault in pool.map(self._one, numbers):
                if fault is not None:
                    self.faults.append(fault)

    def _one(self, number: int) -> str | None:
        attempt = self._malformed.attempt(number)
        try:
            answer = exchange(self._address, attempt.raw, end=attempt.kind in ("cut", "chunks"), timeout_s=TIMEOUT_S)
            fault = self._judge(attempt, answer)
        except NotHttp as error:
            # Who closes while bytes of a body wait resets the connection, and with it what was not read of the answer.
            fault = None if attempt.kind == "deep" and attempt.method == "GET" else f"NotHttp: {error}"
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        if attempt.path.startswith(("/pause", "/sleep")):
            for path in ("/wake_up", "/resume"):
                httpx.post(f"{self._server.url}{path}", timeout=TIMEOUT_S)
        where = f"seed {SEED} number {number}: {attempt.kind}, {attempt.method} {attempt.path[:60]}"
        return None if fault is None else f"{where}: {fault}: {attempt.raw[:300]!r}"

    def _judge(self, attempt: Attempt, answer: Answer | None) -> str | None:
        if answer is None:
            return None if attempt.silent else "closed without an answer"
        self.statuses[attempt.kind, answer.status] += 1
        if answer.status == 501 and attempt.path.split("?")[0] in ABSENT:
            return None
        if answer.status == 503 and "request was aborted" in answer.json["error"]["message"]:
            return None  # by another client's /abort_requests or /pause
        if answer.status == 503 and "/ready" in attempt.path:  # while an attempt to pause has its way
            return None if answer.json["error"]["code"] == "unavailable" else "503 without its reason"
        if answer.status >= 500:
            return f"{answer.status} {answer.body[:300]!r}"
        if answer.status >= 400 and answer.body:  # what is no HTTP gets a bare answer
            error = answer.json["error"]
            if not error["message"] or not error["type"]:
                return f"no error: {answer.body[:300]!r}"
        elif answer.headers.get("content-type") == "application/json" and answer.body:
            answer.json  # noqa: B018 - raises
        return None


@pytest.mark.timeout(1800)
def test_malformed_requests_leave_nothing_behind(surface: Server) -> None:
    driver = Driver(surface)
    driver.run(range(WARM))
    before = memory(surface)
    tree = {process.pid for process in surface.tree()}
    driver.run(range(WARM, WARM + COUNT))
    after = memory(surface)
    assert not driver.faults, "\n".join(driver.faults[:20]) + f"\n{len(driver.faults)} faults"
    assert {process.pid for process in surface.tree()} == tree
    grown = {part: after[part] - before[part] for part in GROWTH_BYTES}
    print(sorted(driver.statuses.items()), {part: bytes_ >> 10 for part, bytes_ in grown.items()}, "KiB")
    assert all(grown[part] <= most for part, most in GROWTH_BYTES.items()), grown
    kinds = {kind for kind, _ in driver.statuses}
    assert len(kinds) >= 13, kinds
    assert sum(count for (_, status), count in driver.statuses.items() if 400 <= status < 500) > COUNT / 2
    wait_for(lambda: surface.metric("octavo:num_requests_running") == 0, 20, "no request runs")
    wait_for(lambda: surface.metric("octavo:kv_cache_usage_perc") == 0, 20, "all KV blocks are back")
    assert still_serves(surface)


def memory(server: Server) -> dict[str, int]:
    """Return the resident bytes of each process."""
    return {part: psutil.Process(server.pid(part)).memory_info().rss for part in GROWTH_BYTES}
