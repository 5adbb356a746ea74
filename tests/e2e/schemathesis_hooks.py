"""Loaded by schemathesis: what it pauses or puts to sleep is woken at once, so that the next request is answered."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection

__all__ = ["after_call", "broken_requests_are_refused"]

#: A header that nobody knows breaks no request; schemathesis takes the headers of a document for all that there are.
_UNKNOWN = "x-schemathesis-unknown-property"


@schemathesis.check
def broken_requests_are_refused(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """Be schemathesis' own check of negative data, but where a header is there only to be unknown."""
    if _UNKNOWN in {name.lower() for name in case.headers or ()}:
        return None
    return negative_data_rejection(ctx, response, case)


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: Any) -> None:
    """Undo a pause or a sleep."""
    place = urlsplit(str(response.request.url))
    if place.path.startswith(("/pause", "/sleep")) and response.status_code == 200:
        for path in ("/wake_up", "/resume"):
            httpx.post(f"{place.scheme}://{place.netloc}{path}", timeout=30).raise_for_status()
