"""Requests in the order of service; adding and removing costs the same however many wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from octavo.engine_core.request import Request

__all__ = ["RequestQueue"]

_KEY = attrgetter("key")
#: A chunk that grows beyond twice this is split.
_CHUNK = 256

Key = tuple[int, int, int]


class RequestQueue:
    """A sorted list in chunks. A preempted request goes back to where it stood."""

    def __init__(self) -> None:
        self._chunks: list[list[Request]] = []  # none empty
        self._last: list[Key] = []  # key of each chunk's last request
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[Request]:
        """Walk in order; what was walked past may leave meanwhile, and nothing may come."""
        for chunk in self._chunks[:]:
            yield from chunk[:]

    def __contains__(self, request: Request) -> bool:
        place = bisect_left(self._last, request.key)
        if place == len(self._last):
            return False
        chunk = self._chunks[place]
        index = bisect_left(chunk, request.key, key=_KEY)
        return index < len(chunk) and chunk[index] is request

    def snapshot(self) -> list[Request]:
        """Return the requests in order, as a list that stays while the queue changes."""
        return [request for chunk in self._chunks for request in chunk]

    def add(self, request: Request) -> None:
        """Put a request where its key says."""
        self._len += 1
        if not self._chunks:
            self._chunks.append([request])
            self._last.append(request.key)
            return
        place = min(bisect_left(self._last, request.key), len(self._last) - 1)
        chunk = self._chunks[place]
        insort(chunk, request, key=_KEY)
        if len(chunk) > 2 * _CHUNK:
            self._chunks[place : place + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            self._last[place : place + 1] = [chunk[_CHUNK - 1].key, chunk[-1].key]
        else:
            self._last[place] = chunk[-1].key

    def remove(self, request: Request) -> None:
        """Take a request out. Raises ValueError if it is not there."""
        if request not in self:
            raise ValueError(f"{request} is not in the queue")
        place = bisect_left(self._last, request.key)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, request.key, key=_KEY)]
        self._len -= 1
        if chunk:
            self._last[place] = chunk[-1].key
        else:
            del self._chunks[place], self._last[place]
