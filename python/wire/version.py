"""Versions that the handshakes compare."""

from __future__ import annotations

from octavo import __version__

__all__ = ["PROTOCOL", "VERSION"]

#: Of the wire between frontend and core. Raised only when an old peer could not understand a new one.
PROTOCOL = 1

#: Of the distributions. Frontend, core and workers must be of one.
VERSION = __version__
