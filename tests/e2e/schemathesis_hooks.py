"""Loaded by schemathesis: what it pauses or puts to sleep is woken at once, so that the next request is answered."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import schemathesis

__all__ = ["after_call"]


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: Any) -> None:
    """Undo a pause or a sleep."""
    place = urlsplit(str(response.request.url))
    if place.path.startswith(("/pause", "/sleep")) and response.status_code == 200:
        for path in ("/wake_up", "/resume"):
            httpx.post(f"{place.scheme}://{place.netloc}{path}", timeout=30).raise_for_status()
