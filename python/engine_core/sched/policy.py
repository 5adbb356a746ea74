"""Who gives way: the last in the order of service (Request.key: priority where the policy knows it, then arrival)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from octavo.engine_core.request import Request

__all__ = ["victim"]

_KEY = attrgetter("key")


def victim(running: Iterable[Request], spared: Request | None) -> Request | None:
    """Return who is preempted first: the last in the order of service, `spared` only if there is no other."""
    requests = list(running)
    others = [request for request in requests if request is not spared] or requests
    return max(others, key=_KEY, default=None)
