"""The order of service: lower priority value first, then earlier arrival. With equal priorities that is fcfs."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octavo.engine_core.request import Request

__all__ = ["RequestQueue", "victim"]

_KEY = attrgetter("key")


class RequestQueue:
    """Requests in the order of service. A preempted request goes back to where it stood."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __contains__(self, request: Request) -> bool:
        index = bisect_left(self._requests, request.key, key=_KEY)
        return index < len(self._requests) and self._requests[index] is request

    def snapshot(self) -> list[Request]:
        """Return the requests in order, as a list that stays while the queue changes."""
        return list(self._requests)

    def add(self, request: Request) -> None:
        """Put a request where its key says."""
        insort(self._requests, request, key=_KEY)

    def remove(self, request: Request) -> None:
        """Take a request out. Raises ValueError if it is not there."""
        if request not in self:
            raise ValueError(f"{request} is not in the queue")
        del self._requests[bisect_left(self._requests, request.key, key=_KEY)]


def victim(running: Iterable[Request], spared: Request | None) -> Request | None:
    """Return who is preempted first: the last in the order of service, `spared` only if there is no other."""
    requests = list(running)
    others = [request for request in requests if request is not spared] or requests
    return max(others, key=_KEY, default=None)
